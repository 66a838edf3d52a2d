"""The site builds without a warning, the tutorial runs, and code on the pages is sound."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from urllib.parse import unquote

import pytest

import asterism
from support.paths import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.md"))
TUTORIAL = ROOT / "docs" / "tutorial.ipynb"


def test_every_page_is_in_the_navigation():
    navigation = re.findall(r": ([\w/-]+\.(?:md|ipynb))$", (ROOT / "mkdocs.yml").read_text(), re.M)
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in [*PAGES, TUTORIAL]]
    assert sorted(navigation) == sorted(pages)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_on_a_page_is_python_and_what_it_imports_from_us_is_there(page):
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("asterism."):
                module = __import__(node.module, fromlist=["*"])
                assert all(hasattr(module, alias.name) for alias in node.names)


def test_the_tutorial_is_kept_with_its_outputs():
    cells = [each for each in json.loads(TUTORIAL.read_text())["cells"] if "outputs" in each]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    printing = [cell for cell in cells if "print(" in "".join(cell["source"])]
    assert all(cell["outputs"] for cell in printing)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("short", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_tutorial_runs(short):
    """In one process, cell by cell, as a kernel would; the last cells tell whether it worked."""
    names: dict[str, object] = {}
    for cell in json.loads(TUTORIAL.read_text())["cells"]:
        if cell["cell_type"] == "code":
            code = "".join(cell["source"])
            exec(re.sub(r"epochs=\d+", "epochs=2", code) if short else code, names)
    if short:
        return
    assert names["wrong"] < 0.1
    assert names["size"] * 10 < names["dense"]
    assert names["result"].best.density < 0.051


def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    api = (tmp_path / "api.html").read_text()
    assert "omega from theta" in api
    assert "&gt;&gt;&gt;" in api, "examples are code"
    assert not re.findall(r"<p>\w+ {2,}", api), "columns of arguments are lists"
    for page in tmp_path.rglob("*.html"):
        text = page.read_text()
        assert not re.findall(r"""<(?:script|img|link)[^>]+(?:src|href)=["']?(http|//)""", text)
        for target in re.findall(r"""<[^>]+(?:src|href)=["']([^"'#:]+)["'#]""", text):
            if page.name != "404.html":  # its links start at the root of a server
                assert (page.parent / unquote(target)).exists(), f"{page.name} links to {target}"


def test_the_api_lists_every_public_name_as_users_write_it():
    page = (ROOT / "docs" / "api.md").read_text()
    listed = re.findall(r"^::: asterism\.(\w+)$", page, re.MULTILINE)
    assert sorted(listed) == asterism.__all__


PLAIN = re.compile(r"\b(fits (nothing|this|every|the)|lacks|mend(s|ed)?|guise|of yours|goes on)\b")


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_pages_use_the_usual_word(page):
    found = [line for line in page.read_text().splitlines() if PLAIN.search(line)]
    assert not found
