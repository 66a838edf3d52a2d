"""Weights left against test error on LeNet-5: all that is committed here, among published points.

python experiments/tradeoff.py        # writes experiments/tradeoff.svg
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from asterism.report.figure import COLOURS, FAINT, INK, STYLE
from asterism.report.labels import Label, label_points
from asterism.report.published import LENET5

HERE = Path(__file__).parent
FOLDERS = ("standard", "record")
OURS = {
    "reweighted_l1": "ours, ℓ1",
    "reweighted_l2": "ours, ℓ2",
    "focuss": "ours, FOCUSS",
    "record@1540": "ours, 1,540",
    "record@1239": "ours, 1,239",
}
EDGE = 2.0  # per cent: one published point lies above, and would press the others together


def main() -> None:
    records = [each for name in FOLDERS for each in read(HERE / name / "results.json")]
    records = [each for each in records if each["method"] != "dense"]
    with rc_context(STYLE):
        figure = Figure(figsize=(7.4, 3.8), layout="constrained")
        axes = figure.subplots()
        labels, bars = [], []
        for point in LENET5:
            if point.test_error_percent < EDGE:
                place = point.nonzeros, point.test_error_percent
                axes.plot(*place, "o", color=FAINT, markerfacecolor="none")
                labels.append(Label(*place, point.name.replace(" weight", ""), FAINT))
        for method, group in groupby(records, key=lambda record: record["method"]):
            seeds = list(group)
            errors = [record["test_error_percent"] for record in seeds]
            weights, error = fmean(record["nonzeros"] for record in seeds), fmean(errors)
            axes.errorbar(weights, error, stdev(errors), fmt="o", color=COLOURS[0], markersize=6)
            bars += [(weights, error + stdev(errors) * share / 4) for share in range(-4, 5)]
            labels.insert(0, Label(weights, error, OURS[method], INK))
        axes.set_xscale("log")
        axes.set_xlim(650, 60_000)
        axes.set_ylim(0.5, 1.5)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set(xlabel="Weights left, of 430,500", ylabel="Test error (%)")
        label_points(axes, labels, bars)
        figure.savefig(HERE / "tradeoff.svg", metadata={"Date": None})


def read(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return sorted(found, key=lambda record: record["method"])


if __name__ == "__main__":
    main()
