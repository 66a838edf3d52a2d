"""The paper's Figure 1 (`fig:greedy`): validation error and kurtosis over re-weightings.

Owns the drawing only. matplotlib is an extra, so it is imported when a figure is asked for, and
without pyplot, so that no global state is left behind.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from asterism.errors import InputError, missing
from asterism.storage.atomic_files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = Mapping[str, Any]

GAUSSIAN_KURTOSIS = 3.0
LABEL_GAP = 0.06  # of a panel's height: a line of text
# Okabe and Ito's palette; the markers tell the lines apart in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
INK, FAINT = "#333333", "#8A8A8A"
STYLE: dict[Any, Any] = {  # Any: newer matplotlib types its keys as literals
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same glyphs everywhere
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.0,
    "svg.hashsalt": "asterism",  # the same input gives the same element ids
}


def figure1(noise: Sequence[Point], greedy: Sequence[Point], directory: Path) -> tuple[Path, Path]:
    """Writes `figure1.svg` and `figure1.png`; the same input gives the same bytes.

    noise      the points of the run with the noise initialiser
    greedy     those of the run with the greedy one
    directory  where the two files go

    A point is `{"t": int, "validation_error_percent": float, "kurtosis": {layer: float}}`, and
    t = 0 is the dense network.
    """
    figure = build_figure1(noise, greedy)
    from matplotlib import rc_context

    svg, png = directory / "figure1.svg", directory / "figure1.png"
    options: dict[Path, dict[str, Any]] = {svg: {"metadata": {"Date": None}}, png: {"dpi": 200}}
    for path, option in options.items():
        drawing = io.BytesIO()
        with rc_context(STYLE):  # ticks are made, and styled, only when drawn
            figure.savefig(drawing, format=path.suffix[1:], **option)
        write_atomically(path, drawing.getvalue())
    return svg, png


def build_figure1(noise: Sequence[Point], greedy: Sequence[Point]) -> Figure:
    """Panels (a) and (b) for the noise initialiser, (c) and (d) for the greedy one."""
    layers = _check_runs(noise, greedy)
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing("the figure needs matplotlib", "reproduce") from error

    with rc_context(STYLE):
        figure = Figure(figsize=(7.4, 5.2), layout="constrained")
        # An initialiser to a column; each row shares its y axis, so that the two compare by eye.
        (a, c), (b, d) = figure.subplots(2, 2, sharex="col", sharey="row", height_ratios=(2, 3))
        for run, above, below in ((noise, a, b), (greedy, c, d)):
            _plot_error(above, run)
            _plot_kurtosis(below, run, layers)
        # From zero: that the error is "nearly unchanged" is a claim about all of it.
        a.set_ylim(0, 1.2 * a.get_ylim()[1])
        a.set(title="(a)  Noise initialiser", ylabel="Validation error (%)")
        b.set(title="(b)  Noise initialiser", ylabel="Kurtosis", xlabel="Re-weighting $t$")
        c.set(title="(c)  Greedy initialiser")
        d.set(title="(d)  Greedy initialiser", xlabel="Re-weighting $t$")
        for axes in (a, b, c, d):
            label_ends(axes)
    return figure


def _check_runs(noise: Sequence[Point], greedy: Sequence[Point]) -> list[str]:
    """The layer names both runs share."""
    for name, run in (("noise", noise), ("greedy", greedy)):
        if not run:
            raise InputError(f"figure 1: the {name} run has no points")
    layers = list(noise[0]["kurtosis"])
    for point in (*noise, *greedy):
        if set(point["kurtosis"]) != set(layers):
            found = ", ".join(point["kurtosis"])
            raise InputError(f"figure 1: expected layers {', '.join(layers)}; found {found}")
    return layers


def _plot_error(axes: Axes, run: Sequence[Point]) -> None:
    errors = [point["validation_error_percent"] for point in run]
    _plot_reference(axes, errors[0], "dense")
    _plot_run(axes, run, errors, color=INK, marker="o")


def _plot_kurtosis(axes: Axes, run: Sequence[Point], layers: Sequence[str]) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    _plot_reference(axes, GAUSSIAN_KURTOSIS, "Gaussian")
    for layer, colour, marker in zip(layers, cycle(COLOURS), cycle(MARKERS), strict=False):
        kurtosis = [point["kurtosis"][layer] for point in run]
        _plot_run(axes, run, kurtosis, color=colour, marker=marker, label=layer)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))


def _plot_reference(axes: Axes, y: float, label: str) -> None:
    axes.axhline(y, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), label=label)


def _plot_run(axes: Axes, run: Sequence[Point], values: Sequence[float], **style: Any) -> None:
    every = max(1, len(run) // 12)  # so that the markers of a long run do not hide its line
    axes.plot([point["t"] for point in run], values, markevery=every, **style)


def label_ends(axes: Axes) -> None:
    """Write each labelled line's name at its right end, in its colour, none over another."""
    axes.get_ylim()  # settles the limits, which the transforms below do not
    to_fraction = axes.transData - axes.transAxes
    ends = []
    for line in axes.get_lines():
        y = float(np.asarray(line.get_ydata())[-1])
        if math.isfinite(y) and not str(line.get_label()).startswith("_"):
            ends.append((float(to_fraction.transform((0, y))[1]), line))
    ends.sort(key=lambda end: end[0])
    for y, (_, line) in zip(_spread([y for y, _ in ends], LABEL_GAP), ends, strict=True):
        axes.annotate(
            str(line.get_label()),
            (1, y),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            verticalalignment="center",
            fontsize=8,
            color=line.get_color(),
        )


def _spread(positions: Sequence[float], gap: float) -> list[float]:
    """Sorted positions moved at least `gap` apart: the mean of pushing all up and all down.

    >>> _spread([1.0, 1.0, 5.0], gap=1.0)
    [0.5, 1.5, 5.0]
    """
    up = list(accumulate(positions, lambda below, y: max(y, below + gap)))
    down = list(accumulate(reversed(positions), lambda above, y: min(y, above - gap)))
    return [(high + low) / 2 for high, low in zip(up, reversed(down), strict=True)]
