"""The page of a run: what it says is what the run's files say, and a browser can show it."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise, product
from pathlib import Path

import pytest
import safetensors.torch

import asterism
from asterism.cli.progress import print_lines
from asterism.errors import InputError
from asterism.experiments.budgets import find as budget
from asterism.experiments.data import Dataset
from asterism.experiments.networks import weight_shapes
from asterism.experiments.reproduce import reproduce
from asterism.experiments.table import table
from asterism.report.drawing.labels import GAPS, SIDES, _box
from asterism.report.page import render
from asterism.report.published import LENET5, published_for
from asterism.report.reading.folder import read_account
from support.small import task, trained

CHROMIUM = shutil.which("chromium")
VOID = {"meta", "img", "input", "br", "link", "hr"}


class Page(HTMLParser):
    """Elements in order, each with its attributes, and the text of each table row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data.strip()

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def run(tmp_path_factory, digits: Dataset) -> Path:
    """A reproduction of one row at the smallest budget."""
    out = tmp_path_factory.mktemp("reproduction")
    caption = "small; `asterism reproduce --budget smoke`"
    reproduce(
        budget("smoke"),
        digits,
        out,
        methods=["reweighted_l1"],
        caption=caption,
        monitor=print_lines,
    )
    return out


@pytest.fixture(scope="module")
def search(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("search")
    asterism.sparsify(trained(), task(), max_drop=2.0, max_epochs=12, run=out)
    return out


@pytest.fixture(scope="module")
def page(run: Path) -> str:
    return render(run)


@pytest.fixture(scope="module")
def search_page(search: Path) -> str:
    return render(search)


def test_the_numbers_are_those_of_the_files(run, page):
    rows = Page(page).rows
    state = safetensors.torch.load_file(run / "reweighted_l1-0" / "model.safetensors")
    for layer in ("conv1", "conv2", "fc1", "fc2"):
        kept = int(state[f"{layer}.weight"].count_nonzero())
        assert any(row[0] == layer and row[2] == f"{kept:,}" for row in rows), layer
    for record in json.loads((run / "results.json").read_text()):
        shown = [f"{record['nonzeros']:,}", f"{record['test_error_percent']:.2f}"]
        assert any([row[1], row[3]] == shown for row in rows if len(row) == 5)
    assert "asterism reproduce --budget smoke" in page


def test_the_size_is_that_of_the_saved_file(run, page, tmp_path):
    state = safetensors.torch.load_file(run / "reweighted_l1-0" / "model.safetensors")
    size = asterism.save(state, tmp_path / "net.asterism")
    assert f"{size:,} bytes as an" in page


def test_a_method_alone_has_its_dense_start_and_its_latency(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy") / "reweighted_l1-0"
    row = {"batch": 64, "engine": "torch", "microseconds_per_image": 8.125, "speed_up": 3.5}
    (copy / "bench.json").write_text(json.dumps([row]))
    page = render(copy)
    rows = Page(page).rows
    assert ["torch", "64", "8.12", "3.50"] in rows
    assert "Dense" in [row[0] for row in rows]
    assert "Filters before" in page


def test_a_search_shows_its_choice_its_tolerance_and_every_trial(search, search_page):
    rows, result = Page(search_page).rows, json.loads((search / "result.json").read_text())
    chosen = [row for row in rows if row[0] == "chosen"]
    assert [row[1] for row in chosen] == [f"{result['best']['nonzeros']:,}"]
    assert [row[0] for row in rows].count("cut") == sum(
        trial["trial"] == "cut" for trial in result["history"]
    )
    account = read_account(search)
    assert account.tolerance == pytest.approx(result["dense"]["metric"] - 2)
    assert account.networks[0].before is not None
    assert "The run was started from Python" in search_page, "not from a shell"
    points = [row for row in rows if len(row) == 5 and row[0] in ("dense", "front", "chosen")]
    weights = [int(row[1].replace(",", "")) for row in points]
    assert weights == sorted(weights, reverse=True)
    assert points[0][0] == "dense"
    held = {trial["nonzeros"] for trial in result["history"] if trial["within_tolerance"]}
    assert all(
        (row[4] == "yes") <= (count in held) for row, count in zip(points, weights, strict=True)
    )


def test_a_search_says_when_and_with_what_it_was_made(search, search_page):
    about = json.loads((search / "about.json").read_text())
    assert f"torch {about['versions']['torch']}" in search_page
    assert f", {about['date'][11:16]} UTC" in search_page
    if about["commit"]:
        assert about["commit"].removesuffix("-dirty") in search_page


def test_a_folder_of_an_earlier_version_is_still_read(search, tmp_path):
    old = shutil.copytree(search, tmp_path / "old")
    (old / "about.json").unlink()
    result = json.loads((old / "result.json").read_text())
    for trial in result["history"]:
        trial.pop("losses", None)
    (old / "result.json").write_text(json.dumps(result))
    account = read_account(old)
    assert account.networks[0].wiring == {"0.weight": [], "4.weight": ["0.weight"]}
    page = render(old)
    assert "Training" not in page, "there is no loss to draw"
    assert " UTC" not in page


def test_tables_can_be_downloaded_and_hold_what_the_page_shows(search, search_page):
    page, result = Page(search_page), json.loads((search / "result.json").read_text())
    files = {
        link["download"]: list(csv.DictReader(io.StringIO(decoded(link["href"]))))
        for link in page.all("a")
        if link.get("download")
    }
    assert set(files) == {"trade-off.csv", "layers-best.csv", "trials.csv"}
    assert [row["trial"] for row in files["trials.csv"]] == [
        trial["trial"] for trial in result["history"]
    ]
    kept = sum(int(row["nonzeros"]) for row in files["layers-best.csv"])
    assert kept == result["best"]["nonzeros"]
    assert sum(row["network"] == "chosen" for row in files["trade-off.csv"]) == 1


def decoded(address: str | None) -> str:
    return base64.b64decode(str(address).partition("base64,")[2]).decode()


def test_others_are_cited_for_the_same_network_and_data_only(page):
    shapes = weight_shapes("lenet5")
    assert published_for(shapes, "mnist") == LENET5
    assert all(point.source for point in LENET5)
    assert published_for({**shapes, "fc1": (10, 800)}, "mnist") == ()
    assert "Molchanov" not in page, "the digits are other data"


def test_rows_come_in_the_order_of_the_table(tmp_path):
    keys = ["record@1540", "magnitude@10", "magnitude@2", "reweighted_l1@0.5", "lwc", "dense"]
    numbers = {"layers": {"fc": 1.0}, "density_percent": 1.0, "nonzeros": 10, "epochs": 1}
    results = [
        {"method": key, "seed": seed, "cut": "none", "config": {"seed": seed}, "seconds": 1.0}
        | {"test_error_percent": 1.0 + seed, **numbers}
        for key in keys
        for seed in (10, 2)
    ]
    (tmp_path / "results.json").write_text(json.dumps(results))
    outcomes = read_account(tmp_path).outcomes
    assert [outcome.name for outcome in outcomes] == [
        "Dense",
        "Re-weighted ℓ1 @0.5",
        "LWC",
        "Magnitude pruning @10",
        "Magnitude pruning @2",
        "Re-weighted ℓ1, slowly @1540",
    ]
    in_table = [line.split("|")[1].strip() for line in table(results).splitlines()[2:]]
    assert in_table == [outcome.name.partition(" @")[0] for outcome in outcomes]
    assert {outcome.network.rpartition("-")[2] for outcome in outcomes} == {"2"}, "the first seed"


def test_text_in_a_folder_cannot_become_markup(search, tmp_path):
    copy = shutil.copytree(search, tmp_path / "hostile")
    result = json.loads((copy / "result.json").read_text())
    result["stop_reason"] = "<script>alert(1)</script>"
    result["history"][0]["note"] = '"><img src=x onerror=alert(1)>'
    (copy / "result.json").write_text(json.dumps(result))
    page = render(copy)
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_the_page_needs_nothing_else(page):
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert "@import" not in page
    assert not re.findall(r"url\((?!#)", page)


@pytest.mark.parametrize("kind", ["page", "search_page"])
def test_the_page_is_sound_and_accessible(kind, request):
    page = Page(request.getfixturevalue(kind))
    assert page.open == []
    assert page.all("html")[0]["lang"] == "en"
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(deeper <= level + 1 for level, deeper in pairwise(levels))
    assert all(image["alt"] for image in page.all("img"))
    assert all(drawing["aria-label"] for drawing in page.all("svg"))
    assert all(head["scope"] in ("row", "col") for head in page.all("th"))
    labelled = {label["for"] for label in page.all("label")}
    assert {each["id"] for tag in ("input", "select") for each in page.all(tag)} <= labelled


def test_text_stands_out_in_every_palette():
    css = files("asterism.report").joinpath("page.css").read_text()
    palettes = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    assert len(palettes) == 3, "light, dark and print"
    for palette in palettes:
        colours = dict(re.findall(r"--([\w-]+): (#\w{6})", palette))
        for name in ["ink", "faint", *(f"series-{number}" for number in range(6))]:
            for ground in ("paper", "card") if name in ("ink", "faint") else ("paper",):
                assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)


def contrast(one: str, other: str) -> float:
    """Of two colours, as WCAG 2 has it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_a_name_is_beside_its_point():
    for gap, (right, up) in product(GAPS, SIDES):
        box = _box(100, 100, "name", right, up, gap)
        assert not (box.left < 100 < box.right and box.bottom < 100 < box.top)


def test_what_is_no_run_is_said_in_one_line(run, tmp_path):
    with pytest.raises(InputError, match="is no folder"):
        render(tmp_path / "nonesuch")
    with pytest.raises(InputError, match="holds no run"):
        render(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="unfinished"):
        render(tmp_path)
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(InputError, match="something else"):
        render(tmp_path)
    (tmp_path / "results.json").write_text("[]")
    with pytest.raises(InputError, match="no finished row"):
        render(tmp_path)


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib.image"])
def test_a_missing_package_is_said_in_one_line(missing, run, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=r"pip install '\S+\[report\]'"):
        render(run)


DRIVE = """<script>
const say = (name, value) => document.body.setAttribute("data-" + name, value);
const shown = (all) => [...document.querySelectorAll(all)].filter((e) => e.offsetParent).length;
say("wide", document.documentElement.scrollWidth > window.innerWidth);
say("before", shown(".layer"));
const choice = document.getElementById("choose-layer");
choice.value = "fc1";
choice.dispatchEvent(new Event("change"));
say("after", shown(".layer"));
const slide = document.getElementById("slider");
slide.value = 0;
slide.dispatchEvent(new Event("input"));
say("picked", document.getElementById("picked").textContent);
say("marks", document.querySelectorAll(".mark.picked").length);
</script></body>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no browser here: apt-get install chromium")
def test_a_browser_shows_it_and_its_controls_work(page, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page.replace("</body>", DRIVE))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    done = subprocess.run(
        [str(CHROMIUM), *options, "--window-size=500,900", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "CONSOLE" not in done.stderr, "the page complains"
    (body,) = re.findall(r"<body[^>]*>", done.stdout)
    said = dict(re.findall(r'data-(\w+)="([^"]*)"', body))
    assert said["wide"] == "false", "it does not fit a narrow window"
    assert (said["before"], said["after"]) == ("4", "1")
    assert said["picked"].startswith("Dense: 430,500 weights")
    assert said["marks"] == "1"
