"""The one way we time: two things in turn, many times, and the median of their ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def median_ratio(one: Callable[[], object], other: Callable[[], object], rounds: int) -> float:
    """How many times longer `one` takes than `other`."""
    one(), other()
    ratios = [_seconds(one) / _seconds(other) for _ in range(rounds)]
    return statistics.median(ratios)


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
