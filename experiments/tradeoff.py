"""Weights left against test error: all that is committed here, among published points.

python experiments/tradeoff.py    # writes tradeoff.svg (LeNet-5), cifar10.svg, and both dark
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from asterism.experiments.figure import STYLE
from asterism.report.drawing.labels import Label, label_points
from asterism.report.published import CIFAR10, LENET5, PublishedPoint

HERE = Path(__file__).parent


class Picture(NamedTuple):
    """One figure.

    file       its name, without ending
    weights    of the dense network
    dense      the folder of its results
    lines      groups of rows: the folder and how their keys begin, and what the legend calls them
    points     single rows: folder and key, and the name beside them
    published  points of others
    shown      numbers of weights, most first
    errors     lowest and highest, in per cent
    ticks      numbers of weights
    """

    file: str
    weights: int
    dense: str
    lines: dict[tuple[str, str], str]
    points: dict[tuple[str, str], str]
    published: Sequence[PublishedPoint]
    shown: tuple[int, int]
    errors: tuple[float, float]
    ticks: tuple[int, ...]


PICTURES = (
    Picture(
        "tradeoff",
        430_500,
        "standard",
        {
            ("tradeoff", "reweighted_l1@"): "re-weighted ℓ1, 16 epochs",
            ("tradeoff", "magnitude@"): "magnitude pruning, 16 epochs",
        },
        {
            ("standard", "reweighted_l1"): "ours, ℓ1",
            ("standard", "reweighted_l2"): "ours, ℓ2",
            ("standard", "focuss"): "ours, FOCUSS",
            ("record", "long@1540"): "ours, 1,540 weights",
            ("record", "record@1239"): "ours, 1,239 weights",
        },
        LENET5,
        (10_500, 700),
        (0.5, 2.0),
        (10_000, 5_000, 2_000, 1_000),
    ),
    Picture(
        "cifar10",
        77_360,
        "cifar10",
        {
            ("cifar10", "gradual_l1@"): "ResNet-8, re-weighted ℓ1, 60 + 12 epochs",
            ("cifar10", "magnitude@"): "ResNet-8, magnitude pruning, 60 + 12 epochs",
        },
        {},
        CIFAR10,
        (140_000, 1_200),
        (5.0, 34.0),
        (100_000, 50_000, 20_000, 10_000, 5_000, 2_000),
    ),
)


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
    for picture in PICTURES:
        for theme in (LIGHT, DARK):
            with rc_context({**STYLE, **style(theme)}):
                figure = draw(picture, theme)
                path = HERE / f"{picture.file}{theme.suffix}.svg"
                figure.savefig(path, metadata={"Date": None}, transparent=True)


def style(theme: Theme) -> dict[Any, Any]:
    ink = dict.fromkeys(["text.color", "axes.labelcolor", "xtick.labelcolor"], theme.ink)
    faint = dict.fromkeys(["axes.edgecolor", "xtick.color", "ytick.color"], theme.faint)
    return {**ink, **faint, "ytick.labelcolor": theme.ink, "grid.color": theme.grid}


def draw(picture: Picture, theme: Theme) -> Figure:
    figure = Figure(figsize=(7.4, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.set(xscale="log", xlim=picture.shown, ylim=picture.errors)  # sparser to the right
    axes.set_xticks(picture.ticks, [f"{tick:,}" for tick in picture.ticks])
    axes.minorticks_off()
    axes.set(xlabel="Weights left", ylabel="Test error (%)")
    taken = draw_dense(axes, picture, theme)
    colours = (theme.line, theme.other)
    for ((folder, key), name), colour in zip(picture.lines.items(), colours, strict=True):
        line = [mean for mean in means(folder) if mean.method.startswith(key)]
        bars(axes, line, colour, fmt="o-", markersize=3, linewidth=1.2, label=name)
        taken += around(line)
    labels = []
    if picture.points:
        points = {
            name: mean
            for (folder, key), name in picture.points.items()
            for mean in means(folder)
            if mean.method == key
        }
        bars(axes, points.values(), theme.ours, fmt="o", markersize=7, label="our best, 3 seeds")
        labels += [Label(m.weights, m.error, name, theme.ink) for name, m in points.items()]
        taken += around(list(points.values()))
    labels += draw_published(axes, picture, theme)
    axes.legend(frameon=False, loc="upper left", labelcolor=theme.ink)
    label_points(axes, labels, taken)
    return figure


def draw_dense(axes: Axes, picture: Picture, theme: Theme) -> list[tuple[float, float]]:
    """A line at the dense network's error; returns where it is."""
    (dense,) = [mean for mean in means(picture.dense) if mean.method == "dense"]
    axes.axhline(dense.error, color=theme.faint, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.annotate(
        f"dense\n{picture.weights:,}",
        (1, dense.error),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        verticalalignment="center",
        fontsize=8,
        color=theme.faint,
    )
    most, fewest = picture.shown
    return [(fewest * (most / fewest) ** (part / 60), dense.error) for part in range(61)]


def draw_published(axes: Axes, picture: Picture, theme: Theme) -> list[Label]:
    """Hollow points; returns their names."""
    (most, fewest), (_, highest) = picture.shown, picture.errors
    shown = [
        each
        for each in picture.published
        if fewest < each.nonzeros < most and each.test_error_percent < highest
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
    """Of a folder's methods that were run with three seeds or more, those of most weights first."""
    records: list[dict[str, Any]] = json.loads((HERE / folder / "results.json").read_text())
    records.sort(key=lambda record: record["method"])
    found = []
    for method, group in groupby(records, key=lambda record: record["method"]):
        seeds = list(group)
        if len(seeds) < 3:
            continue
        errors = [record["test_error_percent"] for record in seeds]
        weights = fmean(record["nonzeros"] for record in seeds)
        found.append(Mean(method, weights, fmean(errors), stdev(errors)))
    return sorted(found, key=lambda mean: -mean.weights)


if __name__ == "__main__":
    main()
