"""Schedules: which layers re-weight at t, how tau anneals, how a value moves in a stage.

Every schedule is stateless: a pure function of its arguments, with the formula in the docstring.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from asterism.errors import InputError
from asterism.weights.names import check_patterns, matches

Schedule = Callable[[float], float]
"""progress through a stage, 0 to 1 → value"""


class Layers(ABC):
    """Which layers re-weight at iteration t = 1, 2, …; all weights train in every case."""

    @abstractmethod
    def at(self, t: int, names: Sequence[str]) -> list[str]:
        """The names, out of all targets in the model's order, whose omega is renewed at t."""


@dataclass(frozen=True)
class AllLayers(Layers):
    """Every layer, each time."""

    def at(self, t: int, names: Sequence[str]) -> list[str]:
        return list(names)


@dataclass(frozen=True)
class InTurn(Layers):
    """One layer at a time, round and round, in the model's order or in the one given.

    `order` holds glob patterns; a pattern that matches several layers re-weights them together.

    >>> [InTurn().at(t, ["conv1", "conv2"]) for t in (1, 2, 3)]
    [['conv1'], ['conv2'], ['conv1']]
    """

    order: tuple[str, ...] = ()

    def at(self, t: int, names: Sequence[str]) -> list[str]:
        if not self.order:
            return [names[(t - 1) % len(names)]]
        check_patterns(self.order, names)  # at once, not when the turn comes after hours
        pattern = self.order[(t - 1) % len(self.order)]
        return [name for name in names if matches(name, [pattern])]


class Anneal(ABC):
    """How tau moves from one re-weighting of a layer to its next."""

    @property
    def needs_change(self) -> bool:
        """Whether `change` matters; measuring it costs a copy of the weights."""
        return False

    @abstractmethod
    def next(self, tau: float, change: float) -> float:
        """The next tau, given the relative change of theta since the last re-weighting."""


@dataclass(frozen=True)
class ConstantTau(Anneal):
    """tau stays."""

    def next(self, tau: float, change: float) -> float:
        return tau


@dataclass(frozen=True)
class GeometricTau(Anneal):
    """tau ← max(factor·tau, floor)."""

    factor: float = 0.5
    floor: float = 1e-8

    def __post_init__(self) -> None:
        if not (0 < self.factor <= 1 and self.floor > 0):
            raise InputError(f"GeometricTau needs 0 < factor ≤ 1 and floor > 0, got {self}")

    def next(self, tau: float, change: float) -> float:
        return max(tau * self.factor, self.floor) if tau > self.floor else tau


@dataclass(frozen=True)
class ChartrandYin(Anneal):
    """tau ← tau/10 once the iterate has settled: change < sqrt(tau)/100; never under the floor.

    Chartrand & Yin 2008. Under stochastic gradients the test may never fire, so by default one
    decrease is `forced` at each re-weighting.
    """

    floor: float = 1e-8
    forced: bool = True

    def __post_init__(self) -> None:
        if not self.floor > 0:
            raise InputError(f"ChartrandYin needs floor > 0, got {self.floor}")

    @property
    def needs_change(self) -> bool:
        return not self.forced

    def next(self, tau: float, change: float) -> float:
        settled = self.forced or change < math.sqrt(tau) / 100
        return max(tau / 10, self.floor) if settled and tau > self.floor else tau


def constant(value: float) -> Schedule:
    """value, whatever the progress."""
    return lambda progress: value


def geometric(start: float, end: float) -> Schedule:
    """start·(end/start)^progress.

    >>> geometric(1.0, 0.01)(0.5)
    0.1
    """
    if not (start > 0 and end > 0):
        raise InputError(f"a geometric schedule needs positive ends, got {start} and {end}")
    return lambda progress: start * (end / start) ** progress


def cubic(start: float, end: float) -> Schedule:
    """end + (start - end)·(1 - progress)³: fast while much is superfluous (Zhu & Gupta 2017)."""
    return lambda progress: end + (start - end) * (1 - progress) ** 3


def stepwise(values: Sequence[float]) -> Schedule:
    """Each value for an equal share of the stage."""
    if not values:
        raise InputError("a stepwise schedule needs at least one value")
    return lambda progress: values[min(int(progress * len(values)), len(values) - 1)]


def share(schedule: Schedule, part: int, parts: int) -> Schedule:
    """The piece of a schedule that falls to one of several equal stages.

    schedule  of all stages together
    part      the number of the stage, counted from 0
    parts     how many stages there are
    """
    return lambda progress: schedule((part + progress) / parts)


def warmup_cosine(peak: float, warmup: float = 0.05, final: float = 0.0) -> Schedule:
    """Linear from 0 to `peak` over the first `warmup`, then half a cosine down to `final`.

    peak    the highest value
    warmup  the share of the stage until it is reached
    final   the value at the end
    """
    if not 0 <= warmup < 1:
        raise InputError(f"warmup_cosine needs 0 ≤ warmup < 1, got {warmup}")

    def value(progress: float) -> float:
        if progress < warmup:
            return peak * progress / warmup
        turn = math.pi * (progress - warmup) / (1 - warmup)
        return final + (peak - final) * (1 + math.cos(turn)) / 2

    return value
