"""The search for the sparsest network within a tolerance, as a machine that runs trial by trial.

Owns which trial comes next, what counts as good enough, and when to stop; what was found is in
`asterism.search.state`, which is saved whole after each trial. A trial depends on nothing but its
position there: a search that is killed and resumed ends in the same bits.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor

from asterism.errors import InputError
from asterism.pruning.scores import count
from asterism.search.limits import REWEIGHTING_COST, SPENT, TRIALS, UNTRAINED
from asterism.search.options import SparsifyOptions
from asterism.search.progress.words import percent
from asterism.search.state import Position, SearchState
from asterism.search.trial import CollapseError, Trainer
from asterism.storage.packing import Packed, unpack
from asterism.weights.initial import is_untrained

FIRST_RATIO = 0.3
LAST_RATIO = 0.9
"""Each cut keeps this share of the weights. A cut that fails is halved on the logarithmic scale,
until it would take less than a tenth."""

PATIENT_RATIO, PATIENCE = 0.7, 2
"""Then cuts start again from here with twice the epochs each; this many times."""

FIRST_STRENGTH, STRENGTH_FACTOR = 3.0, 3.0
"""Re-weighting grows stronger from trial to trial, as long as the metric bears it."""

REWEIGHTING_TRIALS = 4
"""As many at the most."""

SETTLING_COST = 4.0
"""What of the tolerance an epoch may cost at its full learning rate: it is no retraining yet."""

TELLING_GAIN = 10.0
"""A trained model does not gain as many tolerances in an epoch."""

PROBES = 6


class Search:
    """The state machine of one search. `run` advances it trial by trial.

    trainer  the model, its task, and what is made sparse
    options  the budget, and what may be spent of it on re-weighting
    state    what was found; where the search stands
    """

    def __init__(self, trainer: Trainer, options: SparsifyOptions, state: SearchState) -> None:
        self.trainer, self.state = trainer, state
        self.optimizers, self.budget = options.optimizers(), options.budget()
        self.reweighting = options.reweighting
        self.total, self.fewest = state.total, trainer.fewest()

    @property
    def position(self) -> Position:
        return self.state.position

    def run(self) -> None:
        if not self.state.restore():
            self._measure_dense()
        elif self._may_continue():
            self.position.stop_reason = ""
            self.state.folder.reopen()
        while not self.position.stop_reason:
            self.state.follow_first_rank()
            self.position.stop_reason = self._advance()
            self.state.save()
        self.state.finish()

    def _may_continue(self) -> bool:
        """Whether the search ended for want of budget, and now there is more."""
        position = self.position
        wanted = position.epochs_per_cut or 1
        return SPENT in position.stop_reason and bool(
            self.budget.next_trial(position.epochs, position.seconds, wanted)
        )

    # ------------------------------------------------------------------ trials

    def _measure_dense(self) -> None:
        dense, start = self.trainer.measure(), self.state.start
        if not math.isfinite(dense):
            raise InputError(f"evaluate gives {dense} for the dense model: nothing to hold on to")
        if start.nonzeros > self.fewest:  # or the model is its own ruin
            ruined = self._measure_cut(start.packed, self.fewest / self.total)
            self.state.load(start.packed)
            self.state.goal.check(dense, ruined)
        if is_untrained(self.trainer.model):
            warnings.warn(UNTRAINED, stacklevel=5)
        self.state.begin(dense)
        self.position.ratio, self.position.strength = FIRST_RATIO, FIRST_STRENGTH

    def _advance(self) -> str:
        """One trial, or the reason why there is none."""
        position = self.position
        if not position.steps:
            return self._settle()
        if position.strength:
            self._reweight()
            return ""
        if position.ratio > LAST_RATIO and not (self._begin_anew() or self._be_patient()):
            return self._finished(f"no cut by {1 - LAST_RATIO:.0%} holds the tolerance")
        epochs = self.budget.next_trial(position.epochs, position.seconds, position.epochs_per_cut)
        if not epochs:
            return self._finished(SPENT)
        if not position.density:
            position.density = self._free_density()
        target = count(position.density * position.ratio, self.total)
        if target < self.fewest:
            return self._finished("hardly a weight is left to cut")
        if self._has_failed(target, epochs):
            position.ratio = math.sqrt(position.ratio)
        else:
            self._cut(epochs, target)
        return ""

    def _has_failed(self, target: int, epochs: int) -> bool:
        """Whether this cut, or from the same weights a smaller one, failed with no fewer epochs."""
        base = self._base_size()
        return any(
            epochs <= tried and (target == failed or (base == before and target < failed))
            for failed, tried, before in self.position.failed
        )

    def _base_size(self) -> int:
        """The weights of the network from which the next trial starts, for telling bases apart."""
        return round(self.position.density * self.total)

    def _begin_anew(self) -> bool:
        """Where re-weighting has left nothing that can be cut, the dense network may have."""
        position = self.position
        if position.cut or position.base is self.state.start.packed:
            return False
        position.base, position.ratio, position.density = self.state.start.packed, FIRST_RATIO, 0.0
        return True

    def _be_patient(self) -> bool:
        """More epochs for each cut, while there is budget for it."""
        position = self.position
        if position.patience == PATIENCE:
            return False
        position.patience += 1
        position.ratio, position.epochs_per_cut = PATIENT_RATIO, 2 * position.epochs_per_cut
        return True

    def _settle(self) -> str:
        """An epoch of plain training: counts its steps, and shows whether the optimizer is fit."""
        position = self.position
        taken: list[int] = []
        with self._trial(1, "training without a cut"):
            metric, note = self._attempt(lambda: taken.append(self.trainer.settle(1)))
        steps = sum(taken)
        good = self.state.is_good(metric, SETTLING_COST)
        others = len(self.optimizers) - 1 - position.optimizer
        if good or not others:
            if not steps:
                raise InputError(f"{note} before anything was cut: lower the learning rate")
            position.steps = float(steps)
            position.epochs_per_cut = self.budget.trial(position.epochs, position.seconds)
            if self.reweighting and not self._epochs_to_reweight:
                note = _join(note, "no re-weighting: its share of the budget is too small for it")
        else:
            position.optimizer += 1
            note = note or "the metric got worse without any cut: another optimizer is tried"
        self.state.record("settle", metric, _join(note, self._is_it_trained(metric)))
        left = self.budget.next_trial(position.epochs, position.seconds, 1)
        return "" if left else self._finished(SPENT)

    def _is_it_trained(self, metric: float) -> str:
        """Doubt, where one epoch gains many times the tolerance."""
        goal, dense = self.state.goal, self.state.start.metric
        gain = -goal.drop(dense, metric)
        if not gain > TELLING_GAIN * goal.max_drop or not goal.max_drop:
            return ""
        return f"better by {gain:.4g} after one epoch: is the model trained?"

    @property
    def _epochs_to_reweight(self) -> int:
        """What each re-weighting may take of its share of the budget."""
        share = self.reweighting * TRIALS / REWEIGHTING_TRIALS
        return round(share * self.position.epochs_per_cut)

    def _reweight(self) -> None:
        """Trains the re-weighted objective, stronger each time, until the metric suffers."""
        position, wanted = self.position, self._epochs_to_reweight
        epochs = self.budget.next_trial(position.epochs, position.seconds, wanted) if wanted else 0
        if not epochs:
            position.strength = 0.0
            return
        strength, steps = position.strength, round(position.steps * epochs)
        with self._trial(epochs, "re-weighting"):
            metric, note = self._attempt(
                lambda: self.trainer.reweight(
                    epochs, (strength / STRENGTH_FACTOR, strength), steps, self._alive()
                )
            )
        good = self._conclude("reweight", metric, note, share=REWEIGHTING_COST)
        done = sum(record.trial == "reweight" for record in position.history)
        stronger = good and done < REWEIGHTING_TRIALS
        position.strength = strength * STRENGTH_FACTOR if stronger else 0.0

    def _cut(self, epochs: int, target: int) -> None:
        """Cuts and retrains from the base; what fails is rolled back, and the next cut smaller."""
        position, density = self.position, target / self.total
        first, steps = 1.0 if position.cut else position.density, round(position.steps * epochs)
        with self._trial(epochs, f"cut to {percent(density)}"):
            metric, note = self._attempt(lambda: self.trainer.cut(epochs, density, steps, first))
        if not self.state.is_good(metric):
            position.failed.append((target, epochs, self._base_size()))
            position.ratio = math.sqrt(position.ratio)
        if self._conclude("cut", metric, note):
            position.density, position.cut = density, True

    def _next_cut(self) -> str:
        """Where the search goes after a cut that failed, if not to an end."""
        position = self.position
        if position.ratio > LAST_RATIO:
            return ""
        return f"next {percent(count(position.density * position.ratio, self.total) / self.total)}"

    def _attempt(self, train: Callable[[], Any]) -> tuple[float, str]:
        """The metric after training, NaN where that went wrong, and what happened."""
        try:
            train()
            metric = self.trainer.measure()
        except CollapseError as error:
            return math.nan, str(error)
        return metric, "the metric is NaN" if math.isnan(metric) else ""

    def _conclude(self, kind: str, metric: float, note: str, share: float = 1.0) -> bool:
        """The next trial starts from what is good; what is not is rolled back."""
        good = self.state.is_good(metric, share)
        if not math.isnan(metric):
            packed = self.state.keep(metric)
            if good:
                self.position.base = packed
        if not good:
            note = _join(note, "rolled back", self._next_cut() if kind == "cut" else "")
        self.state.record(kind, metric, note)
        return good

    def _free_density(self) -> float:
        """The lowest density, within a few probes, at which the base holds without training."""
        low = math.log(self.fewest / self.total)
        self.state.load(self.position.base)
        high = math.log(self.trainer.nonzeros() / self.total)
        for _ in range(PROBES):
            middle = (low + high) / 2
            density = self.trainer.crew.tell(math.exp(middle))
            metric = self._measure_cut(self.position.base, density)
            if self.state.is_good(metric):
                high = middle
                self.state.keep(metric)
                self.state.record("probe", metric)
            else:
                low = middle
        return math.exp(high)

    def _measure_cut(self, packed: Packed, density: float) -> float:
        """The metric of a network that is cut and not retrained, NaN where it cannot be cut so."""
        self.state.load(packed)
        return self._attempt(lambda: self.trainer.prune(density))[0]

    def _alive(self) -> dict[str, Tensor]:
        """Where the network had weights from the start: zeros stay zero."""
        start = unpack(self.state.start.packed)
        return {name: start[name] != 0 for name in self.trainer.weights()}

    # ------------------------------------------------------------------ bookkeeping

    @contextmanager
    def _trial(self, epochs: int, what: str) -> Iterator[None]:
        """From the base, with the chosen optimizer; epochs and seconds are counted."""
        position = self.position
        self.state.load(position.base)
        self.trainer = replace(self.trainer, optimizer=self.optimizers[position.optimizer])
        steps = round((position.steps or self.trainer.batches()) * epochs)
        self.state.progress.begin(what, epochs, steps, (position.epochs, position.seconds))
        self.trainer.crew.part_ways()
        started = time.perf_counter()
        yield
        self.position.epochs += epochs
        # No clock is that of another rank, and budgets are of minutes, too.
        self.position.seconds += self.trainer.crew.tell(time.perf_counter() - started)

    def _finished(self, reason: str) -> str:
        if self.state.best.nonzeros < self.state.start.nonzeros:
            return reason
        return f"nothing sparser holds the tolerance ({reason}): the model is as it was"


def _join(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
