"""A web page that computes a network: to draw on where it classifies images, else with JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files

from asterism.export.steps.step import Portable
from asterism.export.web.module import module

MOST_CLASSES = 1000  # bars


def page(network: Portable, title: str, origin: str) -> tuple[str, int]:
    """The text of a page, and the bytes of the network's tables.

    title   its heading
    origin  the line that names the file it was made from
    """
    code, size = module(network, origin)
    kind = "image" if _is_image_classifier(network) else "json"
    facts = f"{network.weights:,} weights in {size:,} bytes, {network.work:,} multiply-adds."
    body = _filled(
        _file(f"{kind}.html"),
        {"INPUTS": _shapes(network.inputs), "OUTPUTS": _shapes(network.outputs)},
    )
    parts = {
        "TITLE": escape(title),
        "STYLE": _file("page.css"),
        "FACTS": facts,
        "BODY": body,
        "SCRIPT": code.replace("export ", "") + "\n" + _file(f"{kind}.js"),
    }
    return _filled(_file("page.html"), parts) + "\n", size


def _is_image_classifier(network: Portable) -> bool:
    if len(network.inputs) != 1 or len(network.outputs) != 1 or network.integer[0]:
        return False
    (given,), (made,) = network.inputs, network.outputs
    pictures = len(given) == 3 and given[0] in (1, 3) and min(given[1:]) > 4
    return pictures and len(made) == 1 and 1 < made[0] <= MOST_CLASSES


def _shapes(shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(f"[{' × '.join(map(str, shape)) or 'one number'}]" for shape in shapes)


def _file(name: str) -> str:
    return files("asterism.export.web").joinpath(name).read_text(encoding="utf-8").strip()


def _filled(text: str, parts: Mapping[str, str]) -> str:
    """A template whose @NAMES@ are replaced, once each: what is put in is not looked at again."""
    pieces = text.split("@")
    return "".join(
        parts.get(piece, f"@{piece}@") if i % 2 else piece for i, piece in enumerate(pieces)
    )
