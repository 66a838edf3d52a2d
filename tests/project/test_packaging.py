"""What is released: an sdist and a wheel that work where nothing else is, and papers in order."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy
import pytest

import asterism
from support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

ALONE = """
import sys
from importlib.resources import files

import numpy
import asterism
from asterism.kernels import library

assert asterism.__version__ == sys.argv[1]
assert "site-packages" in asterism.__file__
assert (library.load() is not None) == (sys.argv[3] == "ON"), "the kernels were not built"
code = ("export/c/functions/layers.c", "export/web/functions.js", "export/web/page.html")
for name in ("py.typed", "report/page.html", "report/page.css", "report/page.js", *code):
    assert files("asterism").joinpath(name).is_file(), name
net = asterism.runtime.load(sys.argv[2])
assert net(numpy.zeros((2, *net.input_shape), "float32")).shape == (2, 10)
assert "torch" not in sys.modules
try:
    asterism.sparsify
except asterism.InputError as error:
    assert str(error).startswith("asterism.sparsify needs torch: pip install "), error
else:
    raise AssertionError("torch is here")
"""
SOURCES = (".py", ".c", ".h", ".html", ".css", ".js")
NETWORK = ROOT / "experiments" / "file" / "lenet5-record@1239-0.asterism"


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    assert asterism.__version__ == PROJECT["version"]
    assert re.findall(r"^version: (\S+)$", citation, re.MULTILINE) == [PROJECT["version"]]


@pytest.mark.parametrize("name", ["Makefile", "pyproject.toml", "CONTRIBUTING.md"])
def test_every_test_that_is_named_is_there(name):
    """A file that was moved would otherwise be missed by a target that seldom runs."""
    named = re.findall(r"tests/[\w/]+\.py", (ROOT / name).read_text())
    assert named
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_every_extra_is_documented():
    page = (ROOT / "docs" / "install.md").read_text()
    for extra in PROJECT["optional-dependencies"]:
        assert f"asterism[{extra}]" in page, extra


def test_the_hosted_ci_runs_what_ours_does():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert re.findall(r"- run: (.*)", workflow) == [".ci/run"]


def lend_numpy(python: Path) -> None:
    """Links to the numpy that is here: to download and unpack it takes longer than our wheel."""
    (there,) = python.parents[1].glob("lib/python*/site-packages")
    here = Path(numpy.__file__).parents[1]
    for each in (*here.glob("numpy"), *here.glob("numpy.libs"), *here.glob("numpy-*.dist-info")):
        (there / each.name).symlink_to(each)


@pytest.mark.parametrize("kernels", ["OFF", pytest.param("ON", marks=pytest.mark.slow)])
def test_sdist_and_wheel_install_into_an_empty_environment(kernels, tmp_path):
    """The wheel is built from the sdist, so that this fails where the sdist lacks a file.

    As where there is no compiler, and as where there is one. Compiled without optimising, in a
    tenth of the time: the tests run on a library that is.
    """

    def run(*command: str | Path) -> str:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    how = ("-Ccmake.define.CMAKE_C_FLAGS_RELEASE=-O0", f"-Ccmake.define.ASTERISM_KERNELS={kernels}")
    run(sys.executable, "-m", "build", *how, "--outdir", tmp_path / "dist", ROOT)
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert not [name for name in names if "/runs/" in name or "/.venv/" in name]
    sources = [path for path in (ROOT / "src").rglob("*") if path.suffix in SOURCES]
    packed = {name.partition("/")[2] for name in names}
    assert {str(path.relative_to(ROOT)) for path in sources} <= packed
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    lend_numpy(python)  # which is all that the runtime needs
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "-q", "--no-index", wheel)  # which asks for nothing more
    run(*pip, "check")
    run(python, "-c", ALONE, PROJECT["version"], NETWORK, kernels)
    assert "runs saved networks with numpy" in run(python, "-m", "asterism.cli", "--help")
    assert run(python.parent / "asterism", "--version").split() == ["asterism", PROJECT["version"]]
    done = subprocess.run([python.parent / "asterism", "inspect", NETWORK], capture_output=True)
    assert done.returncode == 2
    assert re.fullmatch(rb"asterism: this command needs \w+: pip install .+\n", done.stderr)
