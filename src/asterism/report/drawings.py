"""The drawings of a report: the trade-off, the course of training, the weights' histograms.

Each takes numbers and gives the text of an <svg>.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle, groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from asterism.experiments.figure import GAUSSIAN_KURTOSIS, MARKERS, label_ends
from asterism.experiments.results import EpochRecord, History
from asterism.report.account import Account, Outcome
from asterism.report.labels import Label, label_points
from asterism.report.svg import FAINT, INK, SERIES, Canvas, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 5.6  # inches, at which text is as large on a phone as the page's
BINS = 81
KURTOSIS_LINES = 12
"""Of more layers than this the course shows the largest only."""


def draw_trade_off(account: Account) -> str:
    """Weights left against error or metric, with what others published for the same network."""
    with drawing(WIDTH, 3.9) as canvas:
        axes = canvas.figure.subplots()
        for number, point in enumerate(account.published):
            text = f"{point.name}: {point.nonzeros:,} weights, {point.test_error_percent:g} %"
            (drawn,) = axes.plot(
                point.nonzeros, point.test_error_percent, "o", color=FAINT, markerfacecolor="none"
            )
            canvas.mark(drawn, f"published-{number}", f"{text}. {point.source}")
        front = [each for each in account.outcomes if each.role in ("front", "chosen")]
        if account.trials:
            axes.plot(
                [each.nonzeros for each in front],
                [each.score for each in front],
                color=SERIES[0],
                linewidth=1,
            )
        for number, outcome in enumerate(account.outcomes):
            _draw_outcome(canvas, axes, number, outcome)
        if account.tolerance is not None:
            axes.axhline(account.tolerance, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
            axes.annotate(
                "tolerance",
                (0.01, account.tolerance),
                xycoords=("axes fraction", "data"),
                xytext=(0, 2),
                textcoords="offset points",
                fontsize=8,
                color=FAINT,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set(xlabel="Weights left", ylabel=account.score_name)
        axes.margins(x=0.2, y=0.1)
        if not account.trials:
            axes.set_ylim(bottom=0)
        points = [(each.nonzeros, each.score) for each in account.outcomes]
        label_points(axes, _labels(account), points)
        return canvas.svg("trade-off", _describe_trade_off(account))


def describe_outcome(outcome: Outcome) -> str:
    """A point of the trade-off in words."""
    spread = "" if outcome.spread is None else f" ± {outcome.spread:.2f}"
    seeds = "" if outcome.seeds == 1 else f", {outcome.seeds} seeds"
    return (
        f"{outcome.name}: {outcome.nonzeros:,.0f} weights ({outcome.density_percent:.3g} %),"
        f" {outcome.score:.4g}{spread}{seeds}"
    )


def _draw_outcome(canvas: Canvas, axes: Axes, number: int, outcome: Outcome) -> None:
    style: dict[str, Any] = {
        "front": {"marker": "o", "color": SERIES[0], "markersize": 6},
        "chosen": {"marker": "*", "color": SERIES[1], "markersize": 13, "zorder": 5},
        "dense": {"marker": "s", "color": INK, "markersize": 6},
        "tried": {"marker": "x", "color": FAINT, "markersize": 5},
    }[outcome.role]
    if outcome.spread:
        low, high = outcome.score - outcome.spread, outcome.score + outcome.spread
        axes.plot([outcome.nonzeros] * 2, [low, high], color=style["color"], linewidth=1)
    (drawn,) = axes.plot(outcome.nonzeros, outcome.score, **style)
    canvas.mark(drawn, f"outcome-{number}", describe_outcome(outcome))


def _labels(account: Account) -> list[Label]:
    """Ours first, as a place is not sure for all."""
    ours = [
        Label(each.nonzeros, each.score, each.name, INK)
        for each in account.outcomes
        if not account.trials or each.role in ("chosen", "dense")
    ]
    theirs = [
        Label(each.nonzeros, each.test_error_percent, each.name, FAINT)
        for each in account.published
    ]
    return ours + theirs


def _describe_trade_off(account: Account) -> str:
    points = "; ".join(describe_outcome(each) for each in account.outcomes[:12])
    return f"Weights left against {account.score_name.lower()}. {points}."


def draw_course(key: str, history: History) -> str:
    """Validation error and kurtosis of each layer, epoch by epoch; the paper's Figure 1."""
    layers = _layers(history)
    with drawing(WIDTH, 4.6) as canvas:
        above, below = canvas.figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
        epochs = [record["epoch"] for record in history]
        errors = [record["validation_error_percent"] for record in history]
        above.plot(epochs, errors, color=INK)
        for number, record in enumerate(history):
            (drawn,) = above.plot(record["epoch"], errors[number], "o", color=INK)
            canvas.mark(drawn, f"epoch-{number}", _describe_epoch(record))
        above.set(ylabel="Validation error (%)")
        above.set_ylim(0, 1.25 * max(*errors, 0.1))
        below.axhline(
            GAUSSIAN_KURTOSIS,
            color=FAINT,
            linewidth=0.8,
            linestyle=(0, (4, 3)),
            label="Gaussian",
        )
        for layer, colour, marker in zip(layers, cycle(SERIES), cycle(MARKERS), strict=False):
            values = [record["kurtosis"].get(layer, math.nan) for record in history]
            every = max(1, len(history) // 12)
            below.plot(epochs, values, color=colour, marker=marker, markevery=every, label=layer)
        below.set_yscale("log")
        below.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        below.set(ylabel="Kurtosis", xlabel="Epoch (0: the dense network)")
        below.locator_params(axis="x", integer=True)
        _shade_stages(above, below, history)
        label_ends(below)
        return canvas.svg(f"course-{key}", _describe_course(history, layers))


def _layers(history: History) -> list[str]:
    return list(history[-1]["kurtosis"])[:KURTOSIS_LINES]


def _shade_stages(above: Axes, below: Axes, history: History) -> None:
    """Every other stage in grey, each with its name; "reweight 1", "reweight 2" … are one."""
    stages = groupby(history, key=lambda record: record["stage"].rstrip("0123456789 "))
    for number, (name, records) in enumerate(stages):
        epochs = [record["epoch"] for record in records]
        if epochs == [0]:
            continue
        low, high = epochs[0] - 0.5, epochs[-1] + 0.5
        if number % 2:
            for axes in (above, below):
                axes.axvspan(low, high, color=FAINT, alpha=0.12, linewidth=0)
        above.annotate(
            name,
            ((low + high) / 2, 0.97),
            xycoords=("data", "axes fraction"),
            horizontalalignment="center",
            verticalalignment="top",
            fontsize=8,
            color=INK,
        )


def _describe_epoch(record: EpochRecord) -> str:
    return (
        f"epoch {record['epoch']}, {record['stage']}: validation error"
        f" {record['validation_error_percent']:.2f} %,"
        f" {record['density_percent']:.2f} % of the weights"
    )


def _describe_course(history: History, layers: Sequence[str]) -> str:
    first, last = history[0], history[-1]
    changes = ", ".join(
        f"{layer} from {first['kurtosis'][layer]:.3g} to {last['kurtosis'][layer]:.3g}"
        for layer in layers
        if layer in first["kurtosis"]
    )
    return (
        f"Validation error from {first['validation_error_percent']:.2f} to"
        f" {last['validation_error_percent']:.2f} % over {last['epoch']} epochs."
        f" Kurtosis: {changes}."
    )


def draw_histogram(key: str, name: str, before: Tensor | None, after: Tensor) -> str:
    """How the weights of a layer are spread, on a logarithmic count, before and after."""
    tensors = {"after": after} if before is None else {"before": before, "after": after}
    reach = max(float(tensor.abs().max()) for tensor in tensors.values()) or 1.0
    edges = np.linspace(-reach, reach, BINS + 1)
    with drawing(WIDTH / 1.4, 2.2) as canvas:
        axes = canvas.figure.subplots()
        for (label, tensor), colour in zip(tensors.items(), (FAINT, SERIES[0]), strict=False):
            counts, _ = np.histogram(tensor.detach().float().flatten().numpy(), edges)
            axes.stairs(
                np.maximum(counts, 0.5),
                edges,
                baseline=0.5,
                fill=label == "after",
                color=colour,
                alpha=1.0 if label == "before" else 0.75,
                linewidth=1.3,
                label=label,
            )
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.5)
        axes.set(xlabel="Weight", ylabel="Count")
        if before is not None:
            axes.legend(frameon=False, fontsize=8, loc="upper right")
        zeros = 100 * (1 - int(after.count_nonzero()) / max(after.numel(), 1))
        description = f"Histogram of the weights of {name}: {zeros:.2f} % are exactly zero after."
        return canvas.svg(f"histogram-{key}-{name}", description)
