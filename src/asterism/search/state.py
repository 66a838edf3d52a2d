"""What a search has found, and where it stands: the networks, the history, the position.

Owns what is kept of each trial, which network is the best, and how all of it is saved and restored:
the search after a kill is the search before it. Which trial comes next is not its affair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch

from asterism.errors import FormatError
from asterism.search.folder import SearchFolder
from asterism.search.limits import Goal, SearchBudget
from asterism.search.pareto import Point, TrialRecord, pareto
from asterism.search.progress.display import Progress
from asterism.search.ranks.replicas import load_whole, whole_state
from asterism.search.trial import Trainer
from asterism.storage import random_state
from asterism.storage.packing import Packed, pack, unpack

Watch = Callable[[TrialRecord], Any]


@dataclass
class Position:
    """Where a search stands between two trials; all of it is saved, beside the points.

    base            the weights from which the next trial starts
    density         of the base, or what is left of it by a cut that needs no retraining
    cut             whether the base is the outcome of a cut
    ratio           of the next cut
    patience        how often the epochs of a cut were doubled
    strength        of the next re-weighting; 0 once there are to be no more
    optimizer       which of the default ones
    steps           per epoch; 0 until the first trial has counted them
    epochs          spent so far
    epochs_per_cut  of the next cut
    seconds         spent on training so far
    failed          cuts that have failed: to how many weights, in how many epochs, from how many
    stop_reason     why the search has ended
    history         a record of each trial
    """

    base: Packed
    density: float = 0.0
    cut: bool = False
    ratio: float = 1.0
    patience: int = 0
    strength: float = 0.0
    optimizer: int = 0
    steps: float = 0.0
    epochs: int = 0
    epochs_per_cut: int = 0
    seconds: float = 0.0
    failed: list[tuple[int, int, int]] = field(default_factory=list)
    stop_reason: str = ""
    history: list[TrialRecord] = field(default_factory=list)

    def to_plain(self) -> dict[str, Any]:
        """What a snapshot can hold."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        failed = [list(each) for each in self.failed]
        return {
            **plain,
            "failed": failed,
            "history": [record.to_json() for record in self.history],
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Position:
        """The inverse of `to_plain`."""
        history = [TrialRecord.from_json(record) for record in plain["history"]]
        # Snapshots of earlier searches call the strength a pull.
        settings = {"strength" if name == "pull" else name: each for name, each in plain.items()}
        failed = [tuple(each) for each in plain.get("failed", ())]
        return cls(**{**settings, "history": history, "failed": failed})


class SearchState:
    """All that one search has found; the dense network is its first point.

    trainer     the model, as it is at each moment
    goal        what counts as good enough
    folder      where all of it is saved
    generators  random generators of the task's own
    watch       called with each record
    progress    what a person sees; nothing if not given
    """

    def __init__(
        self,
        trainer: Trainer,
        goal: Goal,
        folder: SearchFolder,
        generators: Sequence[torch.Generator] = (),
        watch: Watch | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.trainer, self.goal, self.folder = trainer, goal, folder
        self.generators, self.watch = generators, watch
        self.progress = progress or Progress(goal, SearchBudget())
        self.total = sum(trainer.sizes().values())
        self.position = Position(pack(whole_state(trainer.model)))
        self.start = self._point(math.nan, self.position.base)
        self.points: list[Point] = []
        self._take_losses()  # of training before the search

    @property
    def best(self) -> Point:
        """The sparsest network within the tolerance; the dense one if there is no other."""
        good = [point for point in self.points if self.is_good(point.metric)]
        return min(good, key=lambda point: point.nonzeros, default=self.start)

    def is_good(self, metric: float, share: float = 1.0) -> bool:
        """Whether a metric is within the tolerance, or a share of it."""
        return self.goal.holds(self.start.metric, metric, share)

    def begin(self, metric: float) -> None:
        """Keeps the dense network's metric, against which all others are held."""
        self.start = replace(self.start, metric=metric)
        self.points = [self.start]
        self.record("dense", metric)

    def keep(self, metric: float) -> Packed:
        """The model as it is; also on the front, if it has a place there."""
        packed = pack(whole_state(self.trainer.model))
        points = [*self.points, self._point(metric, packed)]
        self.points = pareto(points, self.goal.higher_is_better)
        return packed

    def record(self, trial: str, metric: float, note: str = "") -> None:
        """Adds a line to the history, about the model as it is.

        trial   what was done
        metric  of the model; NaN where the trial failed
        note    what was special
        """
        nonzeros = self.trainer.nonzeros()
        record = TrialRecord(
            trial=trial,
            density=nonzeros / self.total,
            nonzeros=nonzeros,
            metric=None if math.isnan(metric) else metric,
            within_tolerance=self.is_good(metric),
            epochs=self.position.epochs,
            seconds=self.position.seconds,
            note=note,
            losses=self._take_losses(),
        )
        self.position.history.append(record)
        self.progress.end(record)
        if self.watch is not None and self.trainer.crew.leads:
            self.watch(record)

    def load(self, packed: Packed) -> None:
        """Puts weights into the model."""
        load_whole(self.trainer.model, unpack(packed))

    def follow_first_rank(self) -> None:
        """Makes the position what it is on rank 0, where the next trial is decided."""
        crew = self.trainer.crew
        if crew.size > 1:
            plain = {**self.position.to_plain(), "base": {}}  # each rank has the weights
            self.position = Position.from_plain({**crew.tell(plain), "base": self.position.base})

    def leave_best(self) -> None:
        """Puts the best weights found into the model."""
        self.load(self.best.packed)

    def save(self) -> None:
        """Everything into the folder."""
        plain = self.position.to_plain()
        plain["at_start"] = self.position.base is self.start.packed
        if plain["at_start"]:
            plain["base"] = {}
        plain["random"] = random_state.capture(self.generators)
        self.folder.save(plain, self.points, self.start)

    def restore(self) -> bool:
        """Whether the folder held a search, which is now this one."""
        found = self.trainer.crew.decide(self.folder.load)
        if found is None:
            return False
        plain, self.points, self.start = found
        try:
            random_state.restore(plain.pop("random"), self.generators)
            if plain.pop("at_start"):
                plain["base"] = self.start.packed
            self.position = Position.from_plain(plain)
        except (KeyError, TypeError) as error:
            raise FormatError(f"state.pt is of another version of asterism: {error}") from error
        self.progress.resume(self.position.history)
        return True

    def finish(self) -> None:
        """The networks and the numbers into the folder, for others to use."""
        result = {
            "stop_reason": self.position.stop_reason,
            "dense": self.start.summary(),
            "best": self.best.summary(),
            "front": [point.summary() for point in self.points],
            "history": [record.to_json() for record in self.position.history],
        }
        self.folder.finish(result, self.best, self.points)

    def _take_losses(self) -> tuple[float, ...]:
        """The training losses since the last time, of a task that keeps them."""
        losses = getattr(self.trainer.task, "losses", None)
        if not isinstance(losses, list):
            return ()
        taken = tuple(float(each) for each in losses)
        losses.clear()
        return taken

    def _point(self, metric: float, packed: Packed) -> Point:
        nonzeros = self.trainer.nonzeros()
        return Point(nonzeros / self.total, nonzeros, metric, self.position.epochs, packed)
