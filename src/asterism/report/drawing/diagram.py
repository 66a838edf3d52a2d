"""A picture of the network: its layers from input to output, as wide as their live units.

A layer is a bar, as wide as the square root of its live output units; the outline is its width when
dense. The colour is the density, on a logarithmic scale. Bands join layers that follow one another,
arcs those that do not: branches, residual connections.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from asterism.report.drawing.svg import FAINT, INK, SERIES, WIDTH, Canvas, drawing
from asterism.report.layers import LayerSummary
from asterism.weights.names import layer
from asterism.weights.wiring import Wiring

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LAYERS = 60
ROW = 0.4  # inches from layer to layer
HALF = 1.0  # half the widest bar, in the drawing's units
THICK = 0.46  # of a bar, where rows are 1 apart
LONGEST_NAME = 24
SCALE = (0.1, 1.0, 10.0, 100.0)  # per cent, the legend's squares


class Bar(NamedTuple):
    """A layer's place: its row from the top, half its width when dense, and alive."""

    row: int
    dense: float
    live: float


def draw_diagram(key: str, layers: Sequence[LayerSummary], wiring: Wiring) -> str:
    """The picture of one network; of a very deep one the first layers.

    key     of the network, with which the ids of the picture begin
    layers  what is left of each
    wiring  by name, the layers that a layer reads
    """
    by_name = {each.name: each for each in layers}
    order = [layer(name) for name in wiring if layer(name) in by_name][:MOST_LAYERS]
    reads = {layer(name): [layer(each) for each in sources] for name, sources in wiring.items()}
    with drawing(WIDTH, ROW * (len(order) + 2)) as canvas:
        axes = canvas.figure.subplots()
        bars = _bars([by_name[name] for name in order])
        _join(axes, bars, reads)
        for number, name in enumerate(order):
            _draw_layer(canvas, axes, number, by_name[name], bars[name])
        _draw_legend(axes, len(order))
        axes.set(xlim=(-3.0, 3.0), ylim=(len(order) + 0.9, -0.6))
        axes.set_axis_off()
        return canvas.svg(f"diagram-{key}", _describe([by_name[name] for name in order]))


def _bars(layers: Sequence[LayerSummary]) -> dict[str, Bar]:
    widest = math.sqrt(max((each.shape[0] for each in layers), default=1) or 1)
    return {
        each.name: Bar(
            row, HALF * math.sqrt(each.shape[0]) / widest, HALF * math.sqrt(each.live[0]) / widest
        )
        for row, each in enumerate(layers)
    }


def _join(axes: Axes, bars: Mapping[str, Bar], reads: Mapping[str, Sequence[str]]) -> None:
    """Bands between neighbours; arcs, the longer the wider, between others."""
    for name, bar in bars.items():
        for source in _latest(name, reads):
            if source not in bars:
                continue
            above = bars[source]
            if bar.row == above.row + 1:
                _band(axes, above, bar)
            else:
                _arc(axes, above, bar)


def _latest(name: str, reads: Mapping[str, Sequence[str]]) -> list[str]:
    """What a layer reads, without what another of these has read as one sum with a later one.

    After many residual blocks a layer reads the sum of all their outputs; two arcs tell it.

    >>> reads = {"a": [], "b": ["a"], "c": ["a", "b"], "d": ["a", "b", "c"]}
    >>> _latest("d", reads)
    ['b', 'c']
    """
    sources = reads[name]
    merged = {
        earlier
        for source in sources
        for earlier, _ in pairwise(each for each in reads.get(source, []) if each in sources)
    }
    return [source for source in sources if source not in merged]


def _band(axes: Axes, above: Bar, below: Bar) -> None:
    top, bottom = above.row + THICK / 2, below.row - THICK / 2
    corners = [(-above.live, top), (above.live, top), (below.live, bottom), (-below.live, bottom)]
    axes.fill(*zip(*corners, strict=True), color=FAINT, alpha=0.25, linewidth=0)


def _arc(axes: Axes, above: Bar, below: Bar) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    out = -HALF - 0.12 - 0.05 * min(abs(below.row - above.row), 8)
    points = [(-above.dense, above.row), (out, above.row), (out, below.row)]
    path = Path([*points, (-below.dense, below.row)], [Path.MOVETO, *[Path.CURVE4] * 3])
    axes.add_patch(PathPatch(path, fill=False, edgecolor=FAINT, linewidth=1.0))


def _draw_layer(canvas: Canvas, axes: Axes, number: int, row: LayerSummary, bar: Bar) -> None:
    from matplotlib.patches import Rectangle

    top = bar.row - THICK / 2
    axes.add_patch(
        Rectangle(
            (-bar.dense, top), 2 * bar.dense, THICK, fill=False, edgecolor=FAINT, linewidth=0.8
        )
    )
    live = Rectangle(
        (-bar.live, top),
        2 * bar.live,
        THICK,
        facecolor=SERIES[0],
        alpha=_strength(row.density_percent),
        linewidth=0,
    )
    axes.add_patch(live)
    canvas.mark(live, f"layer-{number}", _describe_layer(row))
    text: dict[str, Any] = {"fontsize": 9, "verticalalignment": "center_baseline"}
    axes.text(-1.55, bar.row, _short(row.name), horizontalalignment="right", color=INK, **text)
    units = f"{row.live[0]:,} of {row.shape[0]:,} units, {row.density_percent:.3g} %"
    axes.text(1.15, bar.row, units, horizontalalignment="left", color=INK, **text)


def _strength(density_percent: float) -> float:
    """How strong the colour of a density is: weak for one in a thousand, full for dense.

    >>> [round(_strength(each), 2) for each in (0.0, 0.1, 1.0, 10.0, 100.0)]
    [0.15, 0.15, 0.43, 0.72, 1.0]
    """
    share = (math.log10(max(density_percent, SCALE[0])) + 1) / 3
    return 0.15 + 0.85 * min(share, 1.0)


def _draw_legend(axes: Axes, row: int) -> None:
    from matplotlib.patches import Rectangle

    text: dict[str, Any] = {
        "fontsize": 8,
        "verticalalignment": "center_baseline",
        "color": FAINT,
    }
    axes.text(-1.55, row + 0.35, "density", horizontalalignment="right", **text)
    for number, each in enumerate(SCALE):
        left = -HALF + 1.05 * number
        square = Rectangle(
            (left, row + 0.15), 0.3, 0.4, facecolor=SERIES[0], alpha=_strength(each), linewidth=0
        )
        axes.add_patch(square)
        axes.text(left + 0.36, row + 0.35, f"{each:g} %", horizontalalignment="left", **text)


def _short(name: str) -> str:
    """The end of a long name, which tells layers apart.

    >>> _short("transformer.encoder.layers.0.self_attn.out_proj")
    '….0.self_attn.out_proj'
    """
    if len(name) <= LONGEST_NAME:
        return name
    parts = name.split(".")
    while len(".".join(parts)) > LONGEST_NAME - 2 and len(parts) > 1:
        parts = parts[1:]
    return f"….{'.'.join(parts)}"


def _describe_layer(row: LayerSummary) -> str:
    return (
        f"{row.name}: {row.live[0]:,} of {row.shape[0]:,} output units have a weight,"
        f" {row.nonzeros:,} of {row.entries:,} weights ({row.density_percent:.3g} %)"
    )


def _describe(layers: Sequence[LayerSummary]) -> str:
    return f"The network from input to output. {'; '.join(map(_describe_layer, layers))}."
