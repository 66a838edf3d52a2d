"""sparsify(): the sparsest network within a tolerance, in one call.

Owns the search: which density to try next, what counts as good enough, when to stop. One trial is
one call of the user's `fit` (`asterism.trials`); after each, the state is saved whole, and a trial
depends on nothing but that state. So a search that is killed and resumed ends in the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from asterism import randomness
from asterism.errors import InputError
from asterism.front import Packed, Point, pack, pareto, unpack
from asterism.goal import Budget, Goal
from asterism.journal import Journal
from asterism.masks import count
from asterism.trials import (
    Bench,
    CollapseError,
    Evaluate,
    Fit,
    MakeOptimizer,
    default_optimizers,
)

Record = dict[str, Any]

FIRST_RATIO = 0.3
LAST_RATIO = 0.9
"""Each cut keeps this share of the weights. A cut that fails is halved on the logarithmic scale,
until it would take less than a tenth."""

PROBES = 6


@dataclass(frozen=True, eq=False)
class SparsifyResult:
    """What a search found.

    model        the user's own, now the sparsest found within the tolerance
    front        the Pareto front of all networks measured, the densest first; each point's
                 `state_dict()` gives its weights
    history      one record per trial, the dense network's first
    stop_reason  why the search ended, in a sentence
    best         the point that the model holds
    """

    model: nn.Module
    front: list[Point]
    history: list[Record]
    stop_reason: str
    best: Point


@dataclass
class State:
    """Where a search stands between two trials; all of it is saved, beside the points."""

    base: Packed
    density: float = 1.0  # of the base, or what can be cut from it without retraining
    ratio: float = FIRST_RATIO
    optimizer: int = 0  # which of the default ones
    steps: float = 0.0  # per epoch; 0 until the first trial has counted them
    epochs: int = 0
    epochs_per_cut: int = 0
    seconds: float = 0.0
    stop_reason: str = ""
    history: list[Record] = field(default_factory=list)


def sparsify(
    model: nn.Module,
    *,
    fit: Fit,
    evaluate: Evaluate,
    max_drop: float,
    higher_is_better: bool = True,
    max_epochs: int | None = None,
    max_minutes: float | None = None,
    epochs_per_cut: int | None = None,
    optimizer: MakeOptimizer | None = None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    generators: Sequence[torch.Generator] = (),
    run: str | Path | None = None,
    resume: bool = False,
    watch: Callable[[Record], Any] | None = None,
) -> SparsifyResult:
    """Makes a trained model as sparse as it gets with its metric within `max_drop` of the dense.

    model             trained; changed in place, and whatever happens it ends holding the best
                      weights found so far. Zeros in it stay zero
    fit               fit(model, optimizer, epochs) trains, with every step taken by that optimizer
    evaluate          evaluate(model) gives the metric on validation data
    max_drop          how much worse than dense the metric may be, in its own units
    higher_is_better  False where the metric is a loss or an error
    max_epochs        budget, counted in epochs asked of `fit`; 60 if no budget is given
    max_minutes       budget in time; both may be given
    epochs_per_cut    epochs of one trial; a tenth of the budget if not given
    optimizer         makes the inner optimizer from a list of parameters
    include, exclude  glob patterns over layers; see `asterism.targets`
    generators        random generators of your own, to be saved with the run
    run, resume       a folder to keep the search in, and whether to go on with what it holds
    watch             called with each record of the history

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(256, 16)
    >>> data = [(x, (x[:, 0] > 0).long())]
    >>> from asterism.supervision import supervised
    >>> model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> task = supervised(data, data)
    >>> task.fit(model, torch.optim.SGD(model.parameters(), lr=0.5), epochs=100)
    >>> result = sparsify(model, **task, max_drop=2.0, max_epochs=40)
    >>> result.best.density < 0.5 and task.evaluate(model) == result.best.metric
    True
    """
    goal = Goal(max_drop, higher_is_better)
    budget = Budget(max_epochs, max_minutes, epochs_per_cut)
    optimizers = default_optimizers() if optimizer is None else [optimizer]
    bench = Bench(model, fit, evaluate, optimizers[0], include, exclude)
    config = {
        "max_drop": max_drop,
        "higher_is_better": higher_is_better,
        "budget": {each.name: getattr(budget, each.name) for each in fields(budget)},
        "include": None if include is None else list(include),
        "exclude": None if exclude is None else list(exclude),
        "weights": {name: list(weight.shape) for name, weight in bench.weights().items()},
        "threads": torch.get_num_threads(),
    }
    journal = Journal(run)
    journal.claim(config, resume)
    search = Search(bench, optimizers, goal, budget, journal, generators, watch)
    try:
        search.run()
    finally:
        search.leave_best()
    return search.result()


class Search:
    """The state machine of one search. `run` advances it trial by trial."""

    def __init__(
        self,
        bench: Bench,
        optimizers: Sequence[MakeOptimizer],
        goal: Goal,
        budget: Budget,
        journal: Journal,
        generators: Sequence[torch.Generator] = (),
        watch: Callable[[Record], Any] | None = None,
    ) -> None:
        self.bench, self.optimizers, self.goal, self.budget = bench, optimizers, goal, budget
        self.journal, self.generators, self.watch = journal, generators, watch
        self.total = sum(weight.numel() for weight in bench.weights().values())
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
            self._save()
        while not self.state.stop_reason:
            self.state.stop_reason = self._advance()
            self._save()
        self.journal.finish(self._summary(), self.best, self.points)

    def leave_best(self) -> None:
        self.bench.model.load_state_dict(unpack(self.best.packed))

    def result(self) -> SparsifyResult:
        state = self.state
        return SparsifyResult(
            self.bench.model, self.points, state.history, state.stop_reason, self.best
        )

    # ------------------------------------------------------------------ trials

    def _measure_dense(self) -> None:
        dense = self.bench.measure()
        if not math.isfinite(dense):
            raise InputError(f"evaluate gives {dense} for the dense model: nothing to hold on to")
        ruined = self._measure_cut(self.total and len(self.bench.weights()) / self.total)
        self._load(self.start.packed)
        self.goal.check(dense, ruined)
        self.start = replace(self.start, metric=dense)
        self.points = [self.start]
        self.state.density = self.start.density
        self._record("dense", dense, good=True)

    def _advance(self) -> str:
        """One trial, or the reason why there is none."""
        state = self.state
        if not state.steps:
            return self._settle()
        if not state.epochs_per_cut:
            state.epochs_per_cut = self.budget.trial(state.epochs, state.seconds)
        epochs = self.budget.next_trial(state.epochs, state.seconds, state.epochs_per_cut)
        if not epochs:
            return self._finished("the budget is spent")
        if state.ratio > LAST_RATIO:
            return self._finished(f"no cut by a {1 - LAST_RATIO:.0%} share holds the tolerance")
        if state.base is self.start.packed:
            state.density = self._free_density()
        target = count(state.density * state.ratio, self.total)
        if target < len(self.bench.weights()):
            return self._finished("hardly a weight is left to cut")
        self._cut(epochs, target / self.total)
        return ""

    def _settle(self) -> str:
        """An epoch of plain training: counts its steps, and shows whether the optimizer is fit."""
        state = self.state
        note = ""
        metric = math.nan
        with self._trial(1):
            try:
                steps = self.bench.settle(1)
                metric = self.bench.measure()
            except CollapseError as error:
                note, steps = str(error), 0
        good = self._is_good(metric)
        others = len(self.optimizers) - 1 - state.optimizer
        if good or not others:
            if not steps:
                raise InputError(f"{note} before anything was cut: lower the learning rate")
            state.steps = float(steps)
        else:
            state.optimizer += 1
            note = note or "the metric fell without any cut: another optimizer"
        self._record("settle", metric, good, note)
        return "" if self.budget.next_trial(state.epochs, state.seconds, 1) else "no budget"

    def _cut(self, epochs: int, target: float) -> None:
        """Cuts and retrains from the base; what fails is rolled back, and the next cut smaller."""
        state, note, metric = self.state, "", math.nan
        first = state.density if state.base is self.start.packed else 1.0
        with self._trial(epochs):
            try:
                self.bench.cut(epochs, target, round(state.steps * epochs), first)
                metric = self.bench.measure()
            except CollapseError as error:
                note = str(error)
        if math.isnan(metric):
            note = note or "the metric is NaN"
        else:
            self._keep(self._point(metric, pack(self.bench.model.state_dict()), state.epochs))
        good = self._is_good(metric)
        if not good:
            note = (note + "; " if note else "") + "rolled back, a smaller cut next"
        self._record("cut", metric, good, note)
        if good:
            state.base = pack(self.bench.model.state_dict())
            state.density = target
        else:
            state.ratio = math.sqrt(state.ratio)

    def _free_density(self) -> float:
        """The lowest density, within a few probes, at which the metric holds without training."""
        low = math.log(len(self.bench.weights()) / self.total)
        high = math.log(self.start.density)
        for _ in range(PROBES):
            middle = (low + high) / 2
            if self._is_good(self._measure_cut(math.exp(middle))):
                high = middle
            else:
                low = middle
        return math.exp(high)

    def _measure_cut(self, density: float) -> float:
        """The metric of the start, cut and not retrained."""
        self._load(self.start.packed)
        self.bench.prune(density)
        return self.bench.measure()

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

    def _keep(self, point: Point) -> None:
        self.points = pareto([*self.points, point], self.goal.higher_is_better)

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
