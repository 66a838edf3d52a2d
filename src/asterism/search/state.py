"""What a search has found, and where it stands: the networks, the history, the state.

Owns what is kept of each trial, which network is the best, and how all of it is saved and restored,
so that the search after a kill is the search before it. Which trial comes next is not its affair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch

from asterism.search.folder import Journal
from asterism.search.limits import Goal
from asterism.search.pareto import Packed, Point, pack, pareto, unpack
from asterism.search.trial import Bench
from asterism.storage import random_state

Record = dict[str, Any]


@dataclass
class State:
    """Where a search stands between two trials; all of it is saved, beside the points."""

    base: Packed
    density: float = 0.0  # of the base, or what is left of it by a cut that needs no retraining
    cut: bool = False  # whether the base is the outcome of a cut
    ratio: float = 1.0  # of the next cut
    patience: int = 0
    pull: float = 0.0  # of the next re-weighting; 0 once there are to be no more
    optimizer: int = 0  # which of the default ones
    steps: float = 0.0  # per epoch; 0 until the first trial has counted them
    epochs: int = 0
    epochs_per_cut: int = 0
    seconds: float = 0.0
    stop_reason: str = ""
    history: list[Record] = field(default_factory=list)


class Ledger:
    """The books of one search; the dense network is the first point in them."""

    def __init__(
        self,
        bench: Bench,
        goal: Goal,
        journal: Journal,
        generators: Sequence[torch.Generator] = (),
        watch: Callable[[Record], Any] | None = None,
    ) -> None:
        self.bench, self.goal, self.journal = bench, goal, journal
        self.generators, self.watch = generators, watch
        self.total = sum(bench.sizes().values())
        self.state = State(pack(bench.model.state_dict()))
        self.start = self._point(math.nan, self.state.base)
        self.points: list[Point] = []

    @property
    def best(self) -> Point:
        """The sparsest network within the tolerance; the dense one if there is no other."""
        good = [point for point in self.points if self.is_good(point.metric)]
        return min(good, key=lambda point: point.nonzeros, default=self.start)

    def is_good(self, metric: float, share: float = 1.0) -> bool:
        """Whether a metric is within the tolerance, or a share of it."""
        return self.goal.holds(self.start.metric, metric, share)

    def begin(self, metric: float) -> None:
        """With the dense network's metric, against which all others are held."""
        self.start = replace(self.start, metric=metric)
        self.points = [self.start]
        self.record("dense", metric)

    def keep(self, metric: float) -> Packed:
        """The model as it is; also on the front, if it has a place there."""
        packed = pack(self.bench.model.state_dict())
        points = [*self.points, self._point(metric, packed)]
        self.points = pareto(points, self.goal.higher_is_better)
        return packed

    def record(self, kind: str, metric: float, note: str = "") -> None:
        """A line of the history about the model as it is."""
        nonzeros = self.bench.nonzeros()
        record = {
            "trial": kind,
            "density": nonzeros / self.total,
            "nonzeros": nonzeros,
            "metric": None if math.isnan(metric) else metric,
            "within_tolerance": self.is_good(metric),
            "epochs": self.state.epochs,
            "seconds": self.state.seconds,
            "note": note,
        }
        self.state.history.append(record)
        if self.watch is not None:
            self.watch(record)

    def load(self, packed: Packed) -> None:
        """Weights into the model."""
        self.bench.model.load_state_dict(unpack(packed))

    def leave_best(self) -> None:
        self.load(self.best.packed)

    def save(self) -> None:
        plain = {each.name: getattr(self.state, each.name) for each in fields(State)}
        plain["at_start"] = self.state.base is self.start.packed
        if plain["at_start"]:
            plain["base"] = {}
        plain["random"] = random_state.capture(self.generators)
        self.journal.save(plain, self.points, self.start)

    def restore(self) -> bool:
        """Whether there was anything to continue."""
        found = self.journal.load()
        if found is None:
            return False
        plain, self.points, self.start = found
        random_state.restore(plain.pop("random"), self.generators)
        if plain.pop("at_start"):
            plain["base"] = self.start.packed
        self.state = State(**plain)
        return True

    def finish(self) -> None:
        """The networks and the numbers, for others to use."""
        result = {
            "stop_reason": self.state.stop_reason,
            "dense": self.start.summary(),
            "best": self.best.summary(),
            "front": [point.summary() for point in self.points],
            "history": self.state.history,
        }
        self.journal.finish(result, self.best, self.points)

    def _point(self, metric: float, packed: Packed) -> Point:
        nonzeros = self.bench.nonzeros()
        return Point(nonzeros / self.total, nonzeros, metric, self.state.epochs, packed)
