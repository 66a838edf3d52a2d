"""The part of the score's axis that is worth seeing: the neighbourhood of what matters.

What lies beyond it would press all the rest together; it is drawn at the edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from asterism.report.reading.account import Account

MOST_OVER_MEDIAN = 2.5
"""Of errors without a tolerance: what is further out than this many medians is at the edge."""


@dataclass(frozen=True)
class Window:
    """From the bottom of an axis to its top, and the marker of what lies beyond.

    bottom  the lowest score that is shown
    top     the highest
    arrow   matplotlib's: "v" where failures are below, "^" where they are above
    """

    bottom: float
    top: float
    arrow: str

    def clip(self, score: float) -> float:
        """The score, or the edge beyond which it lies.

        >>> Window(90.0, 100.0, "v").clip(12.5)
        90.0
        """
        return min(max(score, self.bottom), self.top)


def window(account: Account) -> Window:
    """The window of an account's scores."""
    if account.tolerance is None:
        return _of_errors(account)
    sign = 1 if account.higher_is_better else -1
    limit = sign * account.tolerance
    scores = [sign * each.score for each in account.outcomes]
    best = max(*scores, limit)
    room = best - limit or abs(limit) / 100 or 1.0
    edges = sorted([sign * (limit - 0.6 * room), sign * (best + 0.12 * room)])
    return Window(edges[0], edges[1], "v" if account.higher_is_better else "^")


def _of_errors(account: Account) -> Window:
    errors = [each.score for each in account.outcomes]
    errors += [each.test_error_percent for each in account.published]
    spreads = [each.score + (each.spread or 0.0) for each in account.outcomes]
    edge = MOST_OVER_MEDIAN * median(errors)
    inside = [each for each in [*errors, *spreads] if each <= edge]
    return Window(0.0, 1.1 * max(inside, default=1.0) or 1.0, "^")
