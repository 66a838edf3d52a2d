"""Weights left against test error on LeNet-5: all that is committed here, among published points.

python experiments/tradeoff.py        # writes experiments/tradeoff.svg
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain, groupby, pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from asterism.experiments.figure import COLOURS, FAINT, INK, STYLE
from asterism.report.drawing.labels import Label, label_points
from asterism.report.published import LENET5

HERE = Path(__file__).parent
POINTS = {
    "reweighted_l1": "ours, ℓ1",
    "reweighted_l2": "ours, ℓ2",
    "focuss": "ours, FOCUSS",
    "dns": "our DNS",
    "lwc": "our LWC",
    "record@1540": "ours, 1,540",
    "record@1239": "ours, 1,239",
}
LINES = {"reweighted_l1@": "re-weighted ℓ1, 16 epochs", "magnitude@": "control, 16 epochs"}
EDGE = 2.5  # per cent: beyond it lies nothing but what presses the others together


class Mean(NamedTuple):
    """The seeds of one method."""

    method: str
    weights: float
    error: float
    spread: float


def main() -> None:
    with rc_context(STYLE):
        figure = Figure(figsize=(8.2, 5.6), layout="constrained")
        axes = figure.subplots()
        labels: list[Label] = []
        for point in LENET5:
            if point.test_error_percent < EDGE:
                place = point.nonzeros, point.test_error_percent
                axes.plot(*place, "o", color=FAINT, markerfacecolor="none")
                labels.append(Label(*place, point.name.replace(" weight", ""), FAINT))
        lines: list[list[Mean]] = []
        for (key, name), colour in zip(LINES.items(), COLOURS[1:], strict=False):
            line = [mean for mean in means("tradeoff") if mean.method.startswith(key)]
            draw(axes, line, colour, fmt="o-", markersize=4, label=name)
            lines.append(line)
        points = [
            mean for name in ("standard", "record") for mean in means(name) if mean.method in POINTS
        ]
        draw(axes, points, COLOURS[0], fmt="o", markersize=6)
        named = [Label(mean.weights, mean.error, POINTS[mean.method], INK) for mean in points]
        axes.legend(frameon=False, loc="upper right")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(650, 60_000)
        axes.set_ylim(0.5, EDGE)
        axes.set_yticks([0.5, 0.75, 1, 1.5, 2, 2.5], ["0.5", "0.75", "1", "1.5", "2", "2.5"])
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set(xlabel="Weights left, of 430,500", ylabel="Test error (%)")
        taken = [
            (mean.weights, mean.error + mean.spread * share / 4)
            for mean in (*points, *chain(*lines))
            for share in range(-4, 5)
        ]
        for line in lines:
            taken += [place for pair in pairwise(line) for place in between(*pair)]
        label_points(axes, [*named, *labels], taken)
        figure.savefig(HERE / "tradeoff.svg", metadata={"Date": None})


def draw(axes: Axes, group: Sequence[Mean], colour: str, **style: Any) -> None:
    weights, errors, spreads = zip(*((m.weights, m.error, m.spread) for m in group), strict=True)
    axes.errorbar(weights, errors, spreads, color=colour, **style)


def between(one: Mean, other: Mean) -> list[tuple[float, float]]:
    """Along the line from one to the other, on logarithmic axes."""
    return [
        (
            one.weights * (other.weights / one.weights) ** (part / 20),
            one.error * (other.error / one.error) ** (part / 20),
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
