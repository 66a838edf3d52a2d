"""The search for the sparsest network within a tolerance, as a machine that goes trial by trial.

Owns which trial comes next, what counts as good enough, and when to stop; what was found is in the
ledger. After each trial that is saved whole, and a trial depends on nothing but its state: a search
that is killed and resumed ends in the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor

from asterism.errors import InputError
from asterism.pruning.scores import count
from asterism.search.limits import TRIALS, Budget
from asterism.search.pareto import Packed, unpack
from asterism.search.state import Ledger, State
from asterism.search.trial import (
    Bench,
    CollapseError,
    MakeOptimizer,
)

FIRST_RATIO = 0.3
LAST_RATIO = 0.9
"""Each cut keeps this share of the weights. A cut that fails is halved on the logarithmic scale,
until it would take less than a tenth."""

PATIENT_RATIO, PATIENCE = 0.7, 2
"""Then cuts start again from here with twice the epochs each; this many times."""

FIRST_PULL, PULL_FACTOR = 3.0, 3.0
"""Re-weighting grows stronger from trial to trial, as long as the metric bears it."""

REWEIGHTING_TRIALS, REWEIGHTING_COST = 4, 0.25
"""What of the tolerance re-weighting may use up: the cuts after it need the rest."""

SETTLING_COST = 4.0
"""What of the tolerance an epoch may cost at its full learning rate: it is no retraining yet."""

PROBES = 6


class Search:
    """The state machine of one search. `run` advances it trial by trial."""

    def __init__(
        self,
        bench: Bench,
        optimizers: Sequence[MakeOptimizer],
        budget: Budget,
        reweighting: float,
        ledger: Ledger,
    ) -> None:
        self.bench, self.optimizers, self.budget = bench, optimizers, budget
        self.reweighting, self.ledger = reweighting, ledger
        self.total, self.fewest = ledger.total, bench.fewest()

    @property
    def state(self) -> State:
        return self.ledger.state

    def run(self) -> None:
        if not self.ledger.restore():
            self._measure_dense()
        while not self.state.stop_reason:
            self.state.stop_reason = self._advance()
            self.ledger.save()
        self.ledger.finish()

    # ------------------------------------------------------------------ trials

    def _measure_dense(self) -> None:
        dense, start = self.bench.measure(), self.ledger.start
        if not math.isfinite(dense):
            raise InputError(f"evaluate gives {dense} for the dense model: nothing to hold on to")
        ruined = self._measure_cut(start.packed, self.fewest / self.total)
        self.ledger.load(start.packed)
        self.ledger.goal.check(dense, ruined)
        self.ledger.begin(dense)
        self.state.ratio, self.state.pull = FIRST_RATIO, FIRST_PULL

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
        if state.cut or state.base is self.ledger.start.packed:
            return False
        state.base, state.ratio, state.density = self.ledger.start.packed, FIRST_RATIO, 0.0
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
        good = self.ledger.is_good(metric, SETTLING_COST)
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
        self.ledger.record("settle", metric, note)
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
        """The next trial starts from what is good; what is not is rolled back."""
        good = self.ledger.is_good(metric, share)
        if not math.isnan(metric):
            packed = self.ledger.keep(metric)
            if good:
                self.state.base = packed
        if not good:
            note = _join(note, "rolled back")
        self.ledger.record(kind, metric, note)
        return good

    def _free_density(self) -> float:
        """The lowest density, within a few probes, at which the base holds without training."""
        low = math.log(self.fewest / self.total)
        self.ledger.load(self.state.base)
        high = math.log(self.bench.nonzeros() / self.total)
        for _ in range(PROBES):
            middle = (low + high) / 2
            metric = self._measure_cut(self.state.base, math.exp(middle))
            if self.ledger.is_good(metric):
                high = middle
                self.ledger.keep(metric)
                self.ledger.record("probe", metric)
            else:
                low = middle
        return math.exp(high)

    def _measure_cut(self, packed: Packed, density: float) -> float:
        """The metric of a network that is cut and not retrained, NaN where it cannot be cut so."""
        self.ledger.load(packed)
        return self._attempt(lambda: self.bench.prune(density))[0]

    def _alive(self) -> dict[str, Tensor]:
        """Where the network had weights from the start: zeros stay zero."""
        start = unpack(self.ledger.start.packed)
        return {name: start[name] != 0 for name in self.bench.weights()}

    # ------------------------------------------------------------------ bookkeeping

    @contextmanager
    def _trial(self, epochs: int) -> Iterator[None]:
        """From the base, with the chosen optimizer; epochs and seconds are counted."""
        self.ledger.load(self.state.base)
        self.bench = replace(self.bench, optimizer=self.optimizers[self.state.optimizer])
        started = time.perf_counter()
        yield
        self.state.epochs += epochs
        self.state.seconds += time.perf_counter() - started

    def _finished(self, reason: str) -> str:
        if self.ledger.best.nonzeros < self.ledger.start.nonzeros:
            return reason
        return f"nothing sparser holds the tolerance ({reason}): the model is as it was"


def _join(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
