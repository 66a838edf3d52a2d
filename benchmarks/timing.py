"""The one way we time: two things in turn, many times, and the median of their ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def median_ratio(one: Callable[[], object], other: Callable[[], object], rounds: int) -> float:
    """How many times longer `one` takes than `other`."""
    one(), other()
    ratios = [seconds(one) / seconds(other) for _ in range(rounds)]
    return statistics.median(ratios)


def seconds(run: Callable[[], object], calls: int = 1) -> float:
    """Of one call, as the mean of several."""
    started = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - started) / calls
