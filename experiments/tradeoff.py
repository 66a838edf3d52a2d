"""Weights left against test error on LeNet-5: all that is committed here, among published points.

python experiments/tradeoff.py        # writes tradeoff.svg and tradeoff-dark.svg beside it
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby, pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from asterism.experiments.figure import STYLE
from asterism.report.drawing.labels import Label, label_points
from asterism.report.published import LENET5

HERE = Path(__file__).parent
POINTS = {
    "reweighted_l1": "ours, ℓ1",
    "reweighted_l2": "ours, ℓ2",
    "focuss": "ours, FOCUSS",
    "record@1540": "ours, 1,540 weights",
    "record@1239": "ours, 1,239 weights",
}
LINES = {
    "reweighted_l1@": "re-weighted ℓ1, 16 epochs",
    "magnitude@": "magnitude pruning, 16 epochs",
}
MOST, FEWEST = 10_500, 700
HIGHEST = 2.0  # per cent


class Theme(NamedTuple):
    """The colours of a page that the figure stands on."""

    suffix: str
    ink: str
    faint: str
    grid: str
    ours: str
    line: str
    other: str


LIGHT = Theme("", "#24292f", "#67707a", "#e3e6e9", "#0072b2", "#0072b2", "#d55e00")
DARK = Theme("-dark", "#e4e7ea", "#9aa4ae", "#30373e", "#56b4e9", "#56b4e9", "#f0884a")


class Mean(NamedTuple):
    """The seeds of one method."""

    method: str
    weights: float
    error: float
    spread: float


def main() -> None:
    for theme in (LIGHT, DARK):
        with rc_context({**STYLE, **style(theme)}):
            figure = draw(theme)
            path = HERE / f"tradeoff{theme.suffix}.svg"
            figure.savefig(path, metadata={"Date": None}, transparent=True)


def style(theme: Theme) -> dict[Any, Any]:
    ink = dict.fromkeys(["text.color", "axes.labelcolor", "xtick.labelcolor"], theme.ink)
    faint = dict.fromkeys(["axes.edgecolor", "xtick.color", "ytick.color"], theme.faint)
    return {**ink, **faint, "ytick.labelcolor": theme.ink, "grid.color": theme.grid}


def draw(theme: Theme) -> Figure:
    figure = Figure(figsize=(7.4, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.set(xscale="log", xlim=(MOST, FEWEST), ylim=(0.5, HIGHEST))  # sparser to the right
    axes.set_xticks([10_000, 5_000, 2_000, 1_000], ["10,000", "5,000", "2,000", "1,000"])
    axes.minorticks_off()
    axes.set(xlabel="Weights left of 430,500", ylabel="Test error (%)")
    taken = draw_dense(axes, theme)
    for (key, name), colour in zip(LINES.items(), (theme.line, theme.other), strict=True):
        line = [mean for mean in means("tradeoff") if mean.method.startswith(key)]
        bars(axes, line, colour, fmt="o-", markersize=3, linewidth=1.2, label=name)
        taken += around(line)
    points = [each for name in ("standard", "record") for each in means(name)]
    points = [each for each in points if each.method in POINTS]
    bars(axes, points, theme.ours, fmt="o", markersize=7, label="our best, three seeds")
    labels = [Label(each.weights, each.error, POINTS[each.method], theme.ink) for each in points]
    labels += draw_published(axes, theme)
    axes.legend(frameon=False, loc="upper left", labelcolor=theme.ink)
    label_points(axes, labels, taken + around(points))
    return figure


def draw_dense(axes: Axes, theme: Theme) -> list[tuple[float, float]]:
    """A line at the dense network's error; returns where it is."""
    (dense,) = [mean for mean in means("standard") if mean.method == "dense"]
    axes.axhline(dense.error, color=theme.faint, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.annotate(
        "dense\n430,500",
        (1, dense.error),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        verticalalignment="center",
        fontsize=8,
        color=theme.faint,
    )
    return [(FEWEST * (MOST / FEWEST) ** (part / 60), dense.error) for part in range(61)]


def draw_published(axes: Axes, theme: Theme) -> list[Label]:
    """Hollow points; returns their names."""
    shown = [
        each
        for each in LENET5
        if FEWEST < each.nonzeros < MOST and each.test_error_percent < HIGHEST
    ]
    places = [(each.nonzeros, each.test_error_percent) for each in shown]
    axes.plot(
        *zip(*places, strict=True),
        color=theme.faint,
        markerfacecolor="none",
        linestyle="",
        marker="D",
        markersize=5,
        label="published",
    )
    return [
        Label(*place, each.name, theme.faint) for place, each in zip(places, shown, strict=True)
    ]


def bars(axes: Axes, group: Iterable[Mean], colour: str, **style: Any) -> None:
    weights, errors, spreads = zip(*((m.weights, m.error, m.spread) for m in group), strict=True)
    axes.errorbar(weights, errors, spreads, color=colour, elinewidth=1, **style)


def around(group: list[Mean]) -> list[tuple[float, float]]:
    """Where a group is drawn: the bars of its points, and the line between them."""
    bars = [
        (each.weights, each.error + each.spread * p / 4) for each in group for p in range(-4, 5)
    ]
    return bars + [place for pair in pairwise(group) for place in between(*pair)]


def between(one: Mean, other: Mean) -> list[tuple[float, float]]:
    """Along the line from one to the other."""
    return [
        (
            one.weights * (other.weights / one.weights) ** (part / 20),
            one.error + (other.error - one.error) * part / 20,
        )
        for part in range(21)
    ]


def means(folder: str) -> list[Mean]:
    """Of all methods in a folder's results, those with the most weights first."""
    records: list[dict[str, Any]] = json.loads((HERE / folder / "results.json").read_text())
    records.sort(key=lambda record: record["method"])
    found = []
    for method, group in groupby(records, key=lambda record: record["method"]):
        seeds = list(group)
        errors = [record["test_error_percent"] for record in seeds]
        weights = fmean(record["nonzeros"] for record in seeds)
        found.append(Mean(method, weights, fmean(errors), stdev(errors)))
    return sorted(found, key=lambda mean: -mean.weights)


if __name__ == "__main__":
    main()
