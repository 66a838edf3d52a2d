"""The page of a network, in a browser: the runtime's answers, and drawings that are read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from asterism.errors import InputError
from asterism.experiments.data import load as load_data
from asterism.export.code import export_code
from asterism.export.steps.portable import portable
from asterism.export.web.page import page
from asterism.graph.network import Graph, Input, Node
from asterism.runtime import Net, load
from support.browser import drive, needs_browser
from support.exported import assert_close
from support.paths import ROOT

RECORD = ROOT / "experiments/file/lenet5-front@1540-0.asterism"

# Lines through points, on a paper of 100 × 100; each as a pen would draw it.
STROKES = {
    0: [[(50, 20), (32, 30), (27, 50), (32, 70), (50, 80), (68, 70), (73, 50), (68, 30), (50, 20)]],
    1: [[(50, 15), (50, 85)]],
    2: [[(30, 32), (40, 20), (58, 20), (66, 32), (60, 48), (30, 80), (70, 80)]],
    3: [[(30, 22), (55, 18), (66, 30), (60, 44), (45, 49), (64, 56), (68, 70), (55, 82), (30, 80)]],
    4: [[(35, 18), (30, 52), (68, 52)], [(60, 25), (58, 85)]],
    7: [[(28, 22), (70, 22), (45, 85)]],
}
DRAW = """
const paper = document.getElementById("paper");
const {width: w, height: h} = paper.getBoundingClientRect();
const point = (kind, [x, y]) => paper.dispatchEvent(new PointerEvent(kind,
  {bubbles: true, clientX: paper.getBoundingClientRect().left + x / 100 * w,
   clientY: paper.getBoundingClientRect().top + y / 100 * h}));
const found = [];
for (const strokes of %s) {
  document.getElementById("clear").click();
  for (const [first, ...rest] of strokes) {
    point("pointerdown", first);
    for (const next of rest) point("pointermove", next);
    point("pointerup", rest.at(-1));
  }
  network.drawn();
  found.push(document.getElementById("answer").textContent);
}
return found;
"""


@pytest.fixture(scope="module")
def record() -> Net:
    return load(RECORD)


@pytest.fixture(scope="module")
def digits_page(record: Net) -> str:
    return page(portable(record.graph, record.weights), "digits", "from a file")[0]


def test_the_page_is_small_and_asks_nobody(digits_page: str) -> None:
    assert len(digits_page.encode()) < 25_000
    assert not re.findall(r"""(?:src|href)=["']|https?://|@import|fetch\(|XMLHttp""", digits_page)
    assert "default-src 'none'" in digits_page
    assert "1,130 weights in" in digits_page


@needs_browser
@pytest.mark.parametrize("width", [360, 1100])
def test_what_is_drawn_is_read(digits_page: str, width: int, tmp_path: Path) -> None:
    script = DRAW % json.dumps(list(STROKES.values()))
    found = drive(digits_page, script, tmp_path / "page.html", width=width)
    assert found == [f"This is {digit}." for digit in STROKES]


@needs_browser
def test_a_browser_answers_as_the_runtime_does(
    record: Net, digits_page: str, tmp_path: Path
) -> None:
    x = np.random.default_rng(0).random((30, 1, 28, 28), np.float32)
    script = f"return {json.dumps(x.reshape(30, -1).tolist())}.map(x => [...network.run(x)]);"
    found = drive(digits_page, script, tmp_path / "page.html")
    assert_close(np.array(found, np.float32), record(x), "the page", 1e-4)


@pytest.mark.slow
@needs_browser
def test_a_browser_reads_a_thousand_images(record: Net, digits_page: str, tmp_path: Path) -> None:
    x = load_data("mnist").test.images[:1000].numpy()
    whole = np.round(x * 255).astype(int).reshape(1000, -1).tolist()
    run = "x => [...network.run(x.map(v => Math.fround(v / 255)))]"
    found = drive(digits_page, f"return {json.dumps(whole)}.map({run});", tmp_path / "page.html")
    assert_close(np.array(found, np.float32), record(x), "the page", 1e-4)


@needs_browser
@pytest.mark.parametrize("inverted", [False, True])
def test_a_picture_that_is_opened_is_what_the_network_sees(
    record: Net, digits_page: str, inverted: bool, tmp_path: Path
) -> None:
    """One of the network's own size; dark on light is turned around."""
    x = np.zeros((28, 28), int)
    x[4:24, 12:16] = np.random.default_rng(0).integers(100, 256, (20, 4))
    given = 255 - x if inverted else x
    script = f"""
      const canvas = new OffscreenCanvas(28, 28), pen = canvas.getContext("2d");
      const picture = pen.createImageData(28, 28);
      const given = {json.dumps(given.reshape(-1).tolist())};
      given.forEach((v, k) => picture.data.set([v, v, v, 255], 4 * k));
      pen.putImageData(picture, 0, 0);
      return [...await network.open(await canvas.convertToBlob())];
    """
    found = np.array(drive(digits_page, script, tmp_path / "page.html"))
    made = record((x[None, None] / 255).astype(np.float32))[0].astype(float)
    powers = np.exp(made - made.max())
    np.testing.assert_allclose(found, powers / powers.sum(), atol=2e-3)


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 1100])
def test_the_page_fits_its_window(digits_page: str, width: int, dark: bool, tmp_path: Path) -> None:
    script = """
      const style = getComputedStyle(document.body), page = document.documentElement;
      return [page.scrollWidth <= innerWidth, style.color, style.backgroundColor];
    """
    options = ["--blink-settings=preferredColorScheme=0"] if dark else []
    fits, ink, paper = drive(digits_page, script, tmp_path / "p.html", *options, width=width)
    assert fits
    assert (_light(paper) < _light(ink)) == dark


def _light(colour: str) -> int:
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


@needs_browser
def test_other_networks_have_inputs_and_outputs_as_json(tmp_path: Path) -> None:
    weight = np.float32([[1, 0, 2], [0, 0, 3]])
    inputs = (Input((2, 3)), Input((2,)))
    graph = Graph(inputs, (Node("linear", (0,), (0,)), Node("relu", (1,))), (2, 3))
    text, _ = page(portable(graph, [weight]), "a <b> & c", "")
    assert "<h1>a &lt;b&gt; &amp; c</h1>" in text
    script = """
      const given = document.getElementById("given"), made = document.getElementById("made");
      const found = [made.textContent];
      for (const text of ["[[[1,2,3],[4,5,6]],[-1,2]]", "[[1],[2]]", "not JSON"]) {
        given.value = text;
        given.dispatchEvent(new Event("input"));
        found.push(made.textContent);
      }
      return found;
    """
    first, second, wrong, broken = drive(text, script, tmp_path / "page.html")
    assert json.loads(first) == [[[0, 0], [0, 0]], [0, 0]]
    assert json.loads(second) == [[[7, 9], [16, 18]], [0, 2]]
    assert wrong == "input 1 must have 6 numbers"
    assert "JSON" in broken


def test_the_page_in_the_docs_is_what_is_exported(record: Net, tmp_path: Path) -> None:
    export_code(record.graph, record.weights, tmp_path / "digits.html", origin=RECORD)
    fresh, kept = (folder / "digits.html" for folder in (tmp_path, ROOT / "docs"))
    command = f"asterism export {RECORD.relative_to(ROOT)} docs/digits.html"
    assert fresh.read_text() == kept.read_text(), command


def test_an_ending_that_is_none_is_refused(record: Net, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in .c, .h, .html or .mjs"):
        export_code(record.graph, record.weights, tmp_path / "net.js", origin=RECORD)
