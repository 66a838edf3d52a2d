"""A trial and its outcome in plain words."""

from __future__ import annotations

import math

from asterism.search.limits import REWEIGHTING_COST, Goal
from asterism.search.pareto import TrialRecord

MOST_DIGITS = 6


def percent(density: float) -> str:
    """A share with the digits that it deserves.

    >>> percent(1.0), percent(0.0932), percent(0.00543)
    ('100 %', '9.3 %', '0.54 %')
    """
    share = 100 * density
    digits = 0 if share >= 99.95 else 1 if share >= 1 else 2 if share >= 0.1 else 3
    return f"{share:.{digits}f} %"


def number(metric: float | None, goal: Goal) -> str:
    """A metric, to about a hundredth of the tolerance.

    >>> number(97.7329, Goal(0.5)), number(0.021949, Goal(0.005)), number(12.25, Goal(20))
    ('97.73', '0.0219', '12')
    """
    if metric is None or math.isnan(metric):
        return "no metric"
    if not goal.max_drop:
        return f"{metric:.{MOST_DIGITS}g}"
    digits = math.floor(-math.log10(goal.max_drop)) + 2
    return f"{metric:.{min(max(digits, 0), MOST_DIGITS)}f}"


def describe(record: TrialRecord, goal: Goal, dense: float) -> str:
    """A trial on one line: whether it holds, what was done, the metric, and what follows.

    record  the trial
    goal    the tolerance
    dense   the metric of the network at the start

    >>> record = TrialRecord("cut", 0.093, 93, 94.712, False, 6, 1.0, "rolled back; next 16.9 %")
    >>> describe(record, Goal(0.5), 97.74)
    '✗ cut to 9.3 %: 94.71, needs ≥ 97.24, rolled back; next 16.9 %'
    """
    metric = number(record.metric, goal)
    if record.trial == "dense":
        return f"• dense: {metric}, {record.nonzeros:,} weights; needs {needed(goal, dense)}"
    failed = not record.within_tolerance or "rolled back" in record.note
    share = REWEIGHTING_COST if record.trial == "reweight" else 1.0
    limit = f", needs {needed(goal, dense, share)}" if failed and record.trial != "settle" else ""
    note = f", {record.note}" if record.note else ""
    return f"{'✗' if failed else '✓'} {_what(record)}: {metric}{limit}{note}"


def needed(goal: Goal, dense: float, share: float = 1.0) -> str:
    """The worst metric that holds the tolerance, or a share of it."""
    sign = 1 if goal.higher_is_better else -1
    limit = dense - sign * share * goal.max_drop
    return f"{'≥' if goal.higher_is_better else '≤'} {number(limit, goal)}"


def _what(record: TrialRecord) -> str:
    share = percent(record.density)
    return {
        "settle": "trained for an epoch without a cut",
        "reweight": f"re-weighted, {share} of the weights not zero",
        "probe": f"cut to {share} without retraining",
        "cut": f"cut to {share}",
    }.get(record.trial, record.trial)
