"""What happened over the epochs: error, loss and kurtosis of a method, the trials of a search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle, groupby
from typing import TYPE_CHECKING, Any

from asterism.experiments.figure import GAUSSIAN_KURTOSIS, MARKERS, label_ends
from asterism.experiments.results import EpochRecord, History
from asterism.report.drawing.svg import FAINT, INK, SERIES, WIDTH, Canvas, drawing
from asterism.report.drawing.window import Window, window
from asterism.report.reading.account import Account, duration
from asterism.search.pareto import TrialRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHED = (0, (4, 3))
KURTOSIS_LINES = 12
"""Of more layers than this the course shows the largest only."""


# ---------------------------------------------------------------------- a method


def draw_course(key: str, history: History) -> str:
    """Validation error, training loss and kurtosis of each layer, epoch by epoch.

    Error and kurtosis are those of the paper's Figure 1.
    """
    layers = _layers(history)
    with drawing(WIDTH, 5.6) as canvas:
        above, middle, below = canvas.figure.subplots(3, 1, sharex=True, height_ratios=(4, 3, 6))
        _draw_errors(canvas, above, history)
        _draw_losses(middle, history)
        _draw_kurtosis(below, history, layers)
        below.set(xlabel="Epoch (0: the dense network)")
        below.locator_params(axis="x", integer=True)
        _shade_stages((above, middle, below), history)
        label_ends(below)
        return canvas.svg(f"course-{key}", _describe_course(history, layers))


def _draw_errors(canvas: Canvas, axes: Axes, history: History) -> None:
    errors = [record["validation_error_percent"] for record in history]
    axes.plot([record["epoch"] for record in history], errors, color=INK)
    for number, record in enumerate(history):
        (drawn,) = axes.plot(record["epoch"], errors[number], "o", color=INK)
        canvas.mark(drawn, f"epoch-{number}", _describe_epoch(record))
    axes.set(ylabel="Validation\nerror (%)")
    axes.set_ylim(0, 1.25 * max(*errors, 0.1))


def _draw_losses(axes: Axes, history: History) -> None:
    after = [record for record in history if record["epoch"]]
    losses = [record.get("loss", math.nan) for record in after]
    axes.plot([record["epoch"] for record in after], losses, color=INK, linewidth=1)
    axes.set(ylabel="Training\nloss")
    axes.set_ylim(bottom=0)


def _draw_kurtosis(axes: Axes, history: History, layers: Sequence[str]) -> None:
    axes.axhline(GAUSSIAN_KURTOSIS, color=FAINT, linewidth=0.8, linestyle=DASHED, label="Gaussian")
    epochs, every = [record["epoch"] for record in history], max(1, len(history) // 12)
    for layer, colour, marker in zip(layers, cycle(SERIES), cycle(MARKERS), strict=False):
        values = [record["kurtosis"].get(layer, math.nan) for record in history]
        axes.plot(epochs, values, color=colour, marker=marker, markevery=every, label=layer)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(ylabel="Kurtosis")


def _layers(history: History) -> list[str]:
    return list(history[-1]["kurtosis"])[:KURTOSIS_LINES]


def _shade_stages(panels: Sequence[Axes], history: History) -> None:
    """Every other stage in grey, each with its name; "reweight 1", "reweight 2" … are one."""
    stages = groupby(history, key=lambda record: record["stage"].rstrip("0123456789 "))
    for number, (name, records) in enumerate(stages):
        epochs = [record["epoch"] for record in records]
        if epochs == [0]:
            continue
        low, high = epochs[0] - 0.5, epochs[-1] + 0.5
        if number % 2:
            for axes in panels:
                axes.axvspan(low, high, color=FAINT, alpha=0.12, linewidth=0)
        panels[0].annotate(
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


# ---------------------------------------------------------------------- a search


def draw_search(account: Account) -> str:
    """Metric, weights and training loss of a search, trial by trial."""
    trials, shown = account.trials, window(account)
    with_losses = any(trial.losses for trial in trials)
    ratios = (5, 4, 3) if with_losses else (5, 4)
    with drawing(WIDTH, 0.4 * sum(ratios) + 0.4) as canvas:
        panels = canvas.figure.subplots(len(ratios), 1, sharex=True, height_ratios=ratios)
        _draw_metrics(canvas, panels[0], account, shown)
        _draw_weights(panels[1], trials)
        if with_losses:
            _draw_trial_losses(panels[2], trials)
        spent = trials[-1]
        panels[-1].set(
            xlabel=f"Epoch ({spent.epochs} epochs in {duration(spent.seconds)} of training)"
        )
        return canvas.svg("search", _describe_search(trials))


def _draw_metrics(canvas: Canvas, axes: Axes, account: Account, shown: Window) -> None:
    if account.tolerance is not None:
        axes.axhline(account.tolerance, color=SERIES[2], linewidth=0.9, linestyle=DASHED)
    held = [trial for trial in account.trials if trial.within_tolerance]
    scores = [shown.clip(trial.metric or 0.0) for trial in held]
    axes.plot([trial.epochs for trial in held], scores, color=SERIES[0], linewidth=1)
    for number, trial in enumerate(account.trials):
        if trial.metric is None:
            continue
        style: dict[str, Any] = {"marker": "o", "color": SERIES[0]}
        if not trial.within_tolerance:
            outside = shown.clip(trial.metric) != trial.metric
            style = {"marker": shown.arrow if outside else "x", "color": FAINT}
        (drawn,) = axes.plot(
            trial.epochs, shown.clip(trial.metric), linestyle="", clip_on=False, **style
        )
        canvas.mark(drawn, f"trial-{number}", str(trial))
    axes.set_ylim(shown.bottom, shown.top)
    axes.set(ylabel=account.score_name.partition(" on ")[0])


def _draw_weights(axes: Axes, trials: Sequence[TrialRecord]) -> None:
    """What was kept as steps, what was rolled back as crosses."""
    held = [trial for trial in trials if trial.within_tolerance]
    lost = [trial for trial in trials if not trial.within_tolerance]
    axes.step(
        [trial.epochs for trial in held],
        [trial.nonzeros for trial in held],
        where="post",
        marker="o",
        color=SERIES[0],
        linewidth=1,
    )
    axes.plot([each.epochs for each in lost], [each.nonzeros for each in lost], "x", color=FAINT)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set(ylabel="Weights left")


def _draw_trial_losses(axes: Axes, trials: Sequence[TrialRecord]) -> None:
    """A line for each trial, as each starts from other weights."""
    for trial in trials:
        epochs = range(trial.epochs - len(trial.losses) + 1, trial.epochs + 1)
        colour = SERIES[0] if trial.within_tolerance else FAINT
        marker = "." if len(trial.losses) == 1 else ""
        axes.plot(list(epochs), trial.losses, color=colour, linewidth=1, marker=marker)
    axes.set(ylabel="Training\nloss")
    axes.set_ylim(bottom=0)


def _describe_search(trials: Sequence[TrialRecord]) -> str:
    held = sum(trial.within_tolerance for trial in trials)
    return (
        f"{len(trials)} trials over {trials[-1].epochs} epochs; {held} were within the tolerance:"
        f" the weights fell from {trials[0].nonzeros:,} to"
        f" {min(t.nonzeros for t in trials if t.within_tolerance):,}."
    )
