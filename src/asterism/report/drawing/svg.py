"""A matplotlib figure as SVG that lives inside a page: its colours, its fonts, its tooltips.

Colours become CSS variables, so that one drawing serves light, dark and paper; text stays text;
each marked artist carries a <title>, which every browser shows on hover without a script. Ids are
made unique, as one page has many drawings.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from asterism.errors import missing
from asterism.experiments.figure import COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
WIDTH = 4.8  # inches: text that can be read on a phone, and is not huge on a desk
INK, FAINT, GRID, PAPER = "#333333", "#8a8a8a", "#e6e6e6", "#fefefe"
SERIES = tuple(colour.lower() for colour in COLOURS)
VARIABLES = {
    INK: "ink",
    FAINT: "faint",
    GRID: "grid",
    PAPER: "paper",
    **{colour: f"series-{number}" for number, colour in enumerate(SERIES)},
}


@contextmanager
def drawing(width: float, height: float) -> Iterator[Canvas]:
    """A figure to draw on, its size in inches; matplotlib is an extra."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing("a report needs matplotlib", "report") from error
    style = {
        **STYLE,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": FAINT,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "grid.color": GRID,
        "svg.fonttype": "none",
    }
    with rc_context(style):
        yield Canvas(Figure(figsize=(width, height), layout="constrained"))


class Canvas:
    """A figure, and what each marked artist says on hover."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.marks: dict[str, str] = {}

    def mark(self, artist: Artist, mark: str, text: str) -> None:
        """Gives what is drawn an id and a tooltip.

        artist  what is drawn
        mark    the id
        text    of the tooltip
        """
        artist.set_gid(mark)
        self.marks[mark] = text

    def svg(self, key: str, description: str) -> str:
        """An <svg> element whose ids all start with `key`, described for those who cannot see."""
        content = io.BytesIO()
        self.figure.savefig(content, format="svg", transparent=True, metadata={"Date": None})
        root = ElementTree.fromstring(content.getvalue())
        for each in [child for child in root if child.tag == f"{{{SVG}}}metadata"]:
            root.remove(each)
        for marker in root.iterfind(f".//{{{SVG}}}defs/{{{SVG}}}path"):
            marker.attrib.pop("style", None)  # its <use> has the same, and can be restyled
        for element in root.iter():
            _title(element, self.marks)
            _adapt(element, key)
        root.attrib.pop("width", None)
        root.attrib.pop("height", None)
        root.attrib |= {"role": "img", "aria-label": description}
        ElementTree.register_namespace("", SVG)
        ElementTree.register_namespace("xlink", XLINK)
        return ElementTree.tostring(root, encoding="unicode")


def _title(element: Any, marks: dict[str, str]) -> None:
    text = marks.get(element.get("id", ""))
    if text is not None:
        element.set("class", "mark")
        title = ElementTree.Element(f"{{{SVG}}}title")
        title.text = text
        element.insert(0, title)


def _adapt(element: Any, key: str) -> None:
    for name, value in list(element.attrib.items()):
        if name == "id":
            element.set(name, f"{key}-{value}")
        elif name == f"{{{XLINK}}}href" and value.startswith("#"):
            element.set(name, f"#{key}-{value[1:]}")
        else:
            value = re.sub(r"url\(#", f"url(#{key}-", value)
            element.set(name, re.sub(r"#[0-9a-f]{6}", _variable, value))


def _variable(found: re.Match[str]) -> str:
    colour = found.group()
    return f"var(--{VARIABLES[colour]})" if colour in VARIABLES else colour
