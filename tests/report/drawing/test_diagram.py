"""The picture of the network: every layer, its width, its colour, and who reads whom."""

from __future__ import annotations

import re

from asterism.report.drawing.diagram import MOST_LAYERS, draw_diagram
from asterism.report.layers import LayerSummary
from asterism.weights.wiring import chain


def summary(name: str, live: int, units: int = 64, nonzeros: int = 100) -> LayerSummary:
    return LayerSummary(
        name=name,
        shape=(units, 100),
        entries=100 * units,
        nonzeros=nonzeros,
        live=(live, 50),
        kurtosis=3.0,
        kurtosis_before=None,
        bytes=10,
        macs=None,
    )


def bar(svg: str, name: str) -> tuple[float, float]:
    """The width and the opacity of a layer's bar."""
    title = svg.index(f"<title>{name}:")
    path = re.findall(r'<path d="([^"]*)"[^>]*style="([^"]*)"', svg[title:])[0]
    across = [float(x) for x in re.findall(r"[ML] (\S+) ", path[0])]
    opacity = re.findall(r"opacity: ([\d.]+)", path[1])
    return max(across) - min(across), float(opacity[0]) if opacity else 1.0


def test_bars_are_as_wide_as_the_square_root_of_live_units_and_stronger_where_dense():
    rows = [summary("a", 64, nonzeros=6400), summary("b", 16, nonzeros=64), summary("c", 4)]
    svg = draw_diagram("net", rows, chain(["a.weight", "b.weight", "c.weight"]))
    widths = [bar(svg, name)[0] for name in "abc"]
    assert abs(widths[0] / widths[1] - 2) < 0.01
    assert abs(widths[1] / widths[2] - 2) < 0.01
    strength = [bar(svg, name)[1] for name in "abc"]
    assert strength[0] == 1 > strength[2] > strength[1]
    assert "b: 16 of 64 output units have a weight, 64 of 6,400 weights (1 %)" in svg


def test_neighbours_are_joined_by_bands_and_others_by_arcs():
    rows = [summary(name, 10) for name in "abc"]
    names = [f"{name}.weight" for name in "abc"]
    straight = draw_diagram("net", rows, chain(names))
    skipped = draw_diagram("net", rows, {**chain(names), "c.weight": ["a.weight", "b.weight"]})
    # A curve of SVG's path language: only an arc has one.
    curves = [len(re.findall(r'd="M [^"]*C [^"]*"', svg)) for svg in (straight, skipped)]
    assert curves == [0, 1]


def test_a_very_deep_network_is_drawn_in_part():
    names = [f"layer{number}" for number in range(MOST_LAYERS + 5)]
    svg = draw_diagram("net", [summary(name, 10) for name in names], chain(names))
    assert svg.count("output units have a weight") == 2 * MOST_LAYERS, "in titles and in words"
