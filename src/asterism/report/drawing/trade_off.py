"""The main picture: weights left against error or metric, and what others published."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from asterism.report.drawing.labels import Label, label_points
from asterism.report.drawing.svg import FAINT, INK, SERIES, WIDTH, Canvas, drawing
from asterism.report.drawing.window import Window, window
from asterism.report.reading.account import Account, Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RING = 14.0  # points across, around the chosen one
STYLES: dict[str, dict[str, Any]] = {
    "front": {"marker": "o", "color": SERIES[0], "markersize": 6},
    "chosen": {"marker": "o", "color": SERIES[1], "markersize": 7, "zorder": 5},
    "dense": {"marker": "s", "color": INK, "markersize": 6},
    "tried": {"marker": "x", "color": FAINT, "markersize": 5},
}


class Place(NamedTuple):
    """Where a point is drawn, and whether it would lie outside."""

    x: float
    y: float
    outside: bool


def draw_trade_off(account: Account) -> str:
    """The picture of an account."""
    shown = window(account)
    with drawing(WIDTH, 3.6) as canvas:
        axes = canvas.figure.subplots()
        _draw_tolerance(axes, account, shown)
        _draw_published(canvas, axes, account, shown)
        if account.trials:
            _draw_front(axes, account)
        for number, outcome in enumerate(account.outcomes):
            _draw_outcome(canvas, axes, number, outcome, shown)
        axes.set_xscale("log")
        axes.set_xlim(_across(account))
        axes.set_ylim(shown.bottom, shown.top)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        low, high = _across(account)
        axes.xaxis.set_minor_formatter(_in_between if high < 30 * low else lambda *_: "")
        axes.set(xlabel="Weights left", ylabel=account.score_name.partition(" (h")[0])
        places = [(each.nonzeros, shown.clip(each.score)) for each in account.outcomes]
        clear = places + _along_tolerance(account, axes) + _along_front(account, shown)
        label_points(axes, _labels(account, shown), clear)
        return canvas.svg("trade-off", _describe(account))


def describe_outcome(outcome: Outcome) -> str:
    """A point of the trade-off in words."""
    spread = "" if outcome.spread is None else f" ± {outcome.spread:.2f}"
    seeds = "" if outcome.seeds == 1 else f", {outcome.seeds} seeds"
    verdict = {True: ", within tolerance", False: ", beyond tolerance", None: ""}[outcome.within]
    return (
        f"{outcome.name}: {outcome.nonzeros:,.0f} weights ({outcome.density_percent:.3g} %),"
        f" {outcome.score:.4g}{spread}{seeds}{verdict}"
    )


def _in_between(value: float, _: float) -> str:
    """The label of a tick between powers of ten, where all would run into each other.

    >>> [_in_between(value, 0) for value in (2000, 3000, 5000)]
    ['2,000', '', '5,000']
    """
    return f"{value:,.0f}" if f"{value:.0e}"[0] in "25" else ""


def _across(account: Account) -> tuple[float, float]:
    """The ends of the axis of weights, with room for names on the left."""
    weights = [each.nonzeros for each in account.outcomes]
    weights += [each.nonzeros for each in account.published]
    fewest, most = max(min(weights), 1), max(*weights, 1)
    decades = math.log10(most / fewest) or 1.0
    return fewest / 10 ** (0.4 * decades), most * 10 ** (0.15 * decades)


def _draw_tolerance(axes: Axes, account: Account, shown: Window) -> None:
    """The line, what it allows in a tint, and its name at the right, where no point is."""
    if account.tolerance is None:
        return
    good = shown.top if account.higher_is_better else shown.bottom
    axes.axhspan(account.tolerance, good, color=SERIES[2], alpha=0.07, linewidth=0)
    axes.axhline(account.tolerance, color=SERIES[2], linewidth=0.9, linestyle=(0, (4, 3)))
    axes.annotate(
        f"tolerance\n{account.tolerance:.4g}",
        (1, account.tolerance),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        verticalalignment="center",
        fontsize=8,
        color=SERIES[2],
    )


def _draw_published(canvas: Canvas, axes: Axes, account: Account, shown: Window) -> None:
    for number, point in enumerate(account.published):
        text = f"{point.name}: {point.nonzeros:,} weights, {point.test_error_percent:g} %"
        place = _place(point.nonzeros, point.test_error_percent, shown)
        marker = shown.arrow if place.outside else "o"
        (drawn,) = axes.plot(
            place.x, place.y, marker, color=FAINT, markerfacecolor="none", clip_on=False
        )
        canvas.mark(drawn, f"published-{number}", f"{text}. {point.source}")


def _draw_front(axes: Axes, account: Account) -> None:
    """The line of those that no other beats."""
    front = _front(account)
    weights, scores = [each.nonzeros for each in front], [each.score for each in front]
    axes.plot(weights, scores, color=SERIES[0], linewidth=1)


def _front(account: Account) -> list[Outcome]:
    return [each for each in account.outcomes if each.role in ("front", "chosen")]


def _draw_outcome(canvas: Canvas, axes: Axes, number: int, outcome: Outcome, shown: Window) -> None:
    style = dict(STYLES[outcome.role])
    place = _place(outcome.nonzeros, outcome.score, shown)
    if place.outside:
        style |= {"marker": shown.arrow, "markerfacecolor": "none", "clip_on": False}
    if outcome.spread and not place.outside:
        low, high = outcome.score - outcome.spread, outcome.score + outcome.spread
        axes.plot([outcome.nonzeros] * 2, [low, high], color=style["color"], linewidth=1)
    if outcome.role == "chosen":
        ring = {**style, "markersize": RING, "markerfacecolor": "none", "markeredgewidth": 1.2}
        axes.plot(place.x, place.y, **ring)
    (drawn,) = axes.plot(place.x, place.y, **style)
    canvas.mark(drawn, f"outcome-{number}", describe_outcome(outcome))


def _place(x: float, score: float, shown: Window) -> Place:
    clipped = shown.clip(score)
    return Place(x, clipped, clipped != score)


def _labels(account: Account, shown: Window) -> list[Label]:
    """Ours first, as there may be no room for all."""
    named = [
        Label(
            each.nonzeros,
            shown.clip(each.score),
            _name(account, each),
            INK,
            RING / 2 if each.role == "chosen" else 0.0,
        )
        for each in account.outcomes
        if not account.trials or each.role in ("chosen", "dense")
    ]
    theirs = [
        Label(each.nonzeros, shown.clip(each.test_error_percent), each.name, FAINT)
        for each in account.published
    ]
    outside = [
        Label(each.nonzeros, shown.clip(each.score), f"{each.score:.4g}", FAINT)
        for each in account.outcomes
        if account.trials and shown.clip(each.score) != each.score
    ]
    return named + theirs + outside


def _name(account: Account, outcome: Outcome) -> str:
    in_search = account.trials and outcome.role == "chosen"
    return f"chosen: {outcome.nonzeros:,.0f}" if in_search else outcome.name


def _along_tolerance(account: Account, axes: Axes) -> list[tuple[float, float]]:
    """Places that names keep clear of."""
    if account.tolerance is None:
        return []
    low, high = axes.get_xlim()
    return [(low * (high / low) ** (part / 80), account.tolerance) for part in range(81)]


def _along_front(account: Account, shown: Window) -> list[tuple[float, float]]:
    """Places on the line of a search's front."""
    pairs = pairwise(_front(account)) if account.trials else ()
    return [
        (
            one.nonzeros * (other.nonzeros / one.nonzeros) ** (part / 20),
            shown.clip(one.score + (other.score - one.score) * part / 20),
        )
        for one, other in pairs
        for part in range(1, 20)
    ]


def _describe(account: Account) -> str:
    points = "; ".join(describe_outcome(each) for each in account.outcomes[:12])
    return f"Weights left against {account.score_name.lower()}. {points}."
