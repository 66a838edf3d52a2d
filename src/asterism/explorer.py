"""The search for the sparsest network within a tolerance, as a machine that goes trial by trial.

Owns which trial comes next, what counts as good enough, and when to stop. After each trial the
state is saved whole, and a trial depends on nothing but that state: a search that is killed and
resumed ends in the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from asterism import randomness
from asterism.errors import InputError
from asterism.front import Packed, Point, pack, pareto, unpack
from asterism.goal import TRIALS, Budget, Goal
from asterism.journal import Journal
from asterism.masks import count
from asterism.trials import (
    Bench,
    CollapseError,
    MakeOptimizer,
)

Record = dict[str, Any]

FIRST_RATIO = 0.3
LAST_RATIO = 0.9
"""Each cut keeps this share of the weights. A cut that fails is halved on the logarithmic scale,
until it would take less than a tenth."""

PATIENT_RATIO, PATIENCE = 0.7, 2
"""Then cuts start again from here with twice the epochs each; so many times."""

FIRST_PULL, PULL_FACTOR = 3.0, 3.0
"""Re-weighting grows stronger from trial to trial, as long as the metric bears it."""

REWEIGHTING_TRIALS, REWEIGHTING_COST = 4, 0.25
"""What of the tolerance re-weighting may use up: the cuts after it need the rest."""

SETTLING_COST = 4.0
"""What of the tolerance an epoch may cost at its full learning rate: it is no retraining yet."""

PROBES = 6


@dataclass
class State:
    """Where a search stands between two trials; all of it is saved, beside the points."""

    base: Packed
    density: float = 0.0  # of the base, or what is left of it by a cut that needs no retraining
    cut: bool = False  # whether the base is the outcome of a cut
    ratio: float = FIRST_RATIO
    patience: int = 0
    pull: float = FIRST_PULL  # of the next re-weighting; 0 once there are to be no more
    optimizer: int = 0  # which of the default ones
    steps: float = 0.0  # per epoch; 0 until the first trial has counted them
    epochs: int = 0
    epochs_per_cut: int = 0
    seconds: float = 0.0
    stop_reason: str = ""
    history: list[Record] = field(default_factory=list)


class Search:
    """The state machine of one search. `run` advances it trial by trial."""

    def __init__(
        self,
        bench: Bench,
        optimizers: Sequence[MakeOptimizer],
        goal: Goal,
        budget: Budget,
        reweighting: float,
        journal: Journal,
        generators: Sequence[torch.Generator] = (),
        watch: Callable[[Record], Any] | None = None,
    ) -> None:
        self.bench, self.optimizers, self.goal, self.budget = bench, optimizers, goal, budget
        self.reweighting = reweighting
        self.journal, self.generators, self.watch = journal, generators, watch
        self.total, self.fewest = sum(bench.sizes().values()), bench.fewest()
        packed = pack(bench.model.state_dict())
        self.start = self._point(math.nan, packed, epochs=0)
        self.points: list[Point] = []
        self.state = State(packed)

    @property
    def best(self) -> Point:
        """The sparsest network within the tolerance; the dense one if there is no other."""
        good = [point for point in self.points if self._is_good(point.metric)]
        return min(good, key=lambda point: point.nonzeros, default=self.start)

    def run(self) -> None:
        if not self._restore():
            self._measure_dense()
        while not self.state.stop_reason:
            self.state.stop_reason = self._advance()
            self._save()
        self.journal.finish(self._summary(), self.best, self.points)

    def leave_best(self) -> None:
        self.bench.model.load_state_dict(unpack(self.best.packed))

    # ------------------------------------------------------------------ trials

    def _measure_dense(self) -> None:
        dense = self.bench.measure()
        if not math.isfinite(dense):
            raise InputError(f"evaluate gives {dense} for the dense model: nothing to hold on to")
        ruined = self._measure_cut(self.start.packed, self.fewest / self.total)
        self._load(self.start.packed)
        self.goal.check(dense, ruined)
        self.start = replace(self.start, metric=dense)
        self.points = [self.start]
        self._record("dense", dense, good=True)

    def _advance(self) -> str:
        """One trial, or the reason why there is none."""
        state = self.state
        if not state.steps:
            return self._settle()
        if state.pull:
            self._reweight()
            return ""
        if state.ratio > LAST_RATIO and not (self._begin_anew() or self._be_patient()):
            return self._finished(f"no cut by {1 - LAST_RATIO:.0%} holds the tolerance")
        epochs = self.budget.next_trial(state.epochs, state.seconds, state.epochs_per_cut)
        if not epochs:
            return self._finished("the budget is spent")
        if not state.density:
            state.density = self._free_density()
        target = count(state.density * state.ratio, self.total)
        if target < self.fewest:
            return self._finished("hardly a weight is left to cut")
        self._cut(epochs, target / self.total)
        return ""

    def _begin_anew(self) -> bool:
        """Where re-weighting has left nothing that can be cut, the dense network may have."""
        state = self.state
        if state.cut or state.base is self.start.packed:
            return False
        state.base, state.ratio, state.density = self.start.packed, FIRST_RATIO, 0.0
        return True

    def _be_patient(self) -> bool:
        """More epochs for each cut, while there is budget for it."""
        state = self.state
        if state.patience == PATIENCE:
            return False
        state.patience += 1
        state.ratio, state.epochs_per_cut = PATIENT_RATIO, 2 * state.epochs_per_cut
        return True

    def _settle(self) -> str:
        """An epoch of plain training: counts its steps, and shows whether the optimizer is fit."""
        state = self.state
        taken: list[int] = []
        with self._trial(1):
            metric, note = self._attempt(lambda: taken.append(self.bench.settle(1)))
        steps = sum(taken)
        good = self.goal.holds(self.start.metric, metric, SETTLING_COST)
        others = len(self.optimizers) - 1 - state.optimizer
        if good or not others:
            if not steps:
                raise InputError(f"{note} before anything was cut: lower the learning rate")
            state.steps = float(steps)
            state.epochs_per_cut = self.budget.trial(state.epochs, state.seconds)
            if self.reweighting and not self._epochs_to_reweight:
                note = _join(note, "no re-weighting: its share of the budget is too small for it")
        else:
            state.optimizer += 1
            note = note or "the metric fell without any cut: another optimizer"
        self._record("settle", metric, self._is_good(metric), note)
        left = self.budget.next_trial(state.epochs, state.seconds, 1)
        return "" if left else self._finished("the budget is spent")

    @property
    def _epochs_to_reweight(self) -> int:
        """What each re-weighting may take of its share of the budget."""
        share = self.reweighting * TRIALS / REWEIGHTING_TRIALS
        return round(share * self.state.epochs_per_cut)

    def _reweight(self) -> None:
        """Trains the re-weighted objective, stronger each time, until the metric suffers."""
        state, wanted = self.state, self._epochs_to_reweight
        epochs = self.budget.next_trial(state.epochs, state.seconds, wanted) if wanted else 0
        if not epochs:
            state.pull = 0.0
            return
        pull, steps = state.pull, round(state.steps * epochs)
        with self._trial(epochs):
            metric, note = self._attempt(
                lambda: self.bench.reweight(
                    epochs, (pull / PULL_FACTOR, pull), steps, self._alive()
                )
            )
        good = self._conclude("reweight", metric, note, share=REWEIGHTING_COST)
        done = sum(record["trial"] == "reweight" for record in state.history)
        state.pull = pull * PULL_FACTOR if good and done < REWEIGHTING_TRIALS else 0.0

    def _cut(self, epochs: int, target: float) -> None:
        """Cuts and retrains from the base; what fails is rolled back, and the next cut smaller."""
        state = self.state
        first, steps = 1.0 if state.cut else state.density, round(state.steps * epochs)
        with self._trial(epochs):
            metric, note = self._attempt(lambda: self.bench.cut(epochs, target, steps, first))
        if self._conclude("cut", metric, note):
            state.density, state.cut = target, True
        else:
            state.ratio = math.sqrt(state.ratio)

    def _attempt(self, train: Callable[[], Any]) -> tuple[float, str]:
        """The metric after training, NaN where that went wrong, and what happened."""
        try:
            train()
            metric = self.bench.measure()
        except CollapseError as error:
            return math.nan, str(error)
        return metric, "the metric is NaN" if math.isnan(metric) else ""

    def _conclude(self, kind: str, metric: float, note: str, share: float = 1.0) -> bool:
        """The next trial goes on from what is good; what is not is rolled back."""
        good = self.goal.holds(self.start.metric, metric, share)
        if not math.isnan(metric):
            packed = self._keep(metric)
            if good:
                self.state.base = packed
        if not good:
            note = _join(note, "rolled back")
        self._record(kind, metric, self._is_good(metric), note)
        return good

    def _free_density(self) -> float:
        """The lowest density, within a few probes, at which the base holds without training."""
        low = math.log(self.fewest / self.total)
        self._load(self.state.base)
        high = math.log(self.bench.nonzeros() / self.total)
        for _ in range(PROBES):
            middle = (low + high) / 2
            metric = self._measure_cut(self.state.base, math.exp(middle))
            if self._is_good(metric):
                high = middle
                self._keep(metric)
                self._record("probe", metric, good=True)
            else:
                low = middle
        return math.exp(high)

    def _measure_cut(self, packed: Packed, density: float) -> float:
        """The metric of a network that is cut and not retrained, NaN where it cannot be cut so."""
        self._load(packed)
        return self._attempt(lambda: self.bench.prune(density))[0]

    def _alive(self) -> dict[str, Tensor]:
        """Where the network had weights from the start: zeros stay zero."""
        start = unpack(self.start.packed)
        return {name: start[name] != 0 for name in self.bench.weights()}

    # ------------------------------------------------------------------ bookkeeping

    @contextmanager
    def _trial(self, epochs: int) -> Iterator[None]:
        """From the base, with the chosen optimizer; epochs and seconds are counted."""
        self._load(self.state.base)
        self.bench = replace(self.bench, optimizer=self.optimizers[self.state.optimizer])
        started = time.perf_counter()
        yield
        self.state.epochs += epochs
        self.state.seconds += time.perf_counter() - started

    def _load(self, packed: Packed) -> None:
        self.bench.model.load_state_dict(unpack(packed))

    def _is_good(self, metric: float) -> bool:
        return self.goal.holds(self.start.metric, metric)

    def _point(self, metric: float, packed: Packed, epochs: int) -> Point:
        nonzeros = self.bench.nonzeros()
        return Point(nonzeros / self.total, nonzeros, metric, epochs, packed)

    def _keep(self, metric: float) -> Packed:
        """The model as it is, if it has a place on the front."""
        packed = pack(self.bench.model.state_dict())
        point = self._point(metric, packed, self.state.epochs)
        self.points = pareto([*self.points, point], self.goal.higher_is_better)
        return packed

    def _record(self, kind: str, metric: float, good: bool, note: str = "") -> None:
        nonzeros = self.bench.nonzeros()
        record = {
            "trial": kind,
            "density": nonzeros / self.total,
            "nonzeros": nonzeros,
            "metric": None if math.isnan(metric) else metric,
            "within_tolerance": good,
            "epochs": self.state.epochs,
            "seconds": self.state.seconds,
            "note": note,
        }
        self.state.history.append(record)
        if self.watch is not None:
            self.watch(record)

    def _finished(self, reason: str) -> str:
        if self.best.nonzeros < self.start.nonzeros:
            return reason
        return f"nothing sparser holds the tolerance ({reason}): the model is as it was"

    def _summary(self) -> Record:
        return {
            "stop_reason": self.state.stop_reason,
            "dense": self.start.summary(),
            "best": self.best.summary(),
            "front": [point.summary() for point in self.points],
            "history": self.state.history,
        }

    def _save(self) -> None:
        plain = {each.name: getattr(self.state, each.name) for each in fields(State)}
        plain["at_start"] = self.state.base is self.start.packed
        if plain["at_start"]:
            plain["base"] = {}
        plain["random"] = randomness.capture(self.generators)
        self.journal.save(plain, self.points, self.start)

    def _restore(self) -> bool:
        """Whether there was anything to go on with."""
        found = self.journal.load()
        if found is None:
            return False
        plain, self.points, self.start = found
        randomness.restore(plain.pop("random"), self.generators)
        if plain.pop("at_start"):
            plain["base"] = self.start.packed
        self.state = State(**plain)
        return True


def _join(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
