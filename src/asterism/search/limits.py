"""The tolerance of a search and its budget: pure values, checked once."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

from asterism.errors import InputError

DEFAULT_EPOCHS = 60
UNTRAINED = (
    "is the model trained? Its weights are as PyTorch initialises them: load trained ones first"
    " (on the command line --weights FILE)"
)
TRIALS = 10
"""The trials into which a budget is divided, roughly, unless epochs_per_cut is given."""


@dataclass(frozen=True)
class Goal:
    """The metric may be worse than the dense network's by `max_drop`, in its own units.

    >>> Goal(0.2).holds(98.0, 97.9), Goal(0.2, higher_is_better=False).holds(1.0, 1.3)
    (True, False)
    """

    max_drop: float
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.max_drop < math.inf:
            raise InputError(f"max_drop must be at least 0 and finite, got {self.max_drop}")

    def drop(self, dense: float, metric: float) -> float:
        """How much worse than dense; negative where better."""
        return dense - metric if self.higher_is_better else metric - dense

    def holds(self, dense: float, metric: float, share: float = 1.0) -> bool:
        """Whether a metric is within the tolerance; NaN is not.

        dense   the metric of the dense network
        metric  of the network in question
        share   of the tolerance that it may use
        """
        # 98.0 - 97.8 is more than 0.2 in floating point.
        slack = 1e-9 * max(1.0, abs(dense))
        return self.drop(dense, metric) <= share * self.max_drop + slack

    def check(self, dense: float, ruined: float) -> None:
        """Compares a network with its ruin, cut to a weight per layer, to see what was meant.

        dense   the metric of the network as it is
        ruined  the metric of the ruin; NaN tells nothing

        An error where the ruin is no worse: then the metric runs the other way, or does not depend
        on the network. A warning where the tolerance looks like points and the metric like
        fractions, or the reverse.
        """
        if math.isnan(ruined):
            return
        if self.drop(dense, ruined) < 0:
            raise InputError(
                f"with hardly a weight left the metric is {ruined:.6g}, better than the model's"
                f" {dense:.6g}: set higher_is_better={not self.higher_is_better}, or train it first"
            )
        if self.drop(dense, ruined) == 0:
            raise InputError(
                f"with hardly a weight left the metric is {ruined:.6g} as before: evaluate must"
                " measure the model that it is given, and the model must be trained first"
            )
        size = max(abs(dense), abs(ruined))
        if size <= 1 and self.max_drop >= 0.1:
            meant, found = "points", "a fraction"
        elif 20 < size <= 100 and 0 < self.max_drop <= 0.01:
            meant, found = "a fraction", "in per cent"
        else:
            return
        warnings.warn(
            f"max_drop={self.max_drop:g} looks like {meant}, but the metric ({dense:.6g}) like"
            f" {found}: max_drop is in the metric's own units",
            stacklevel=6,  # the line of the user's that called sparsify
        )


REWEIGHTING_COST = 0.25
"""What of the tolerance re-weighting may use up: the cuts after it need the rest."""

SPENT = "the budget is spent"
"""Why a search ended that a larger budget may continue."""


@dataclass(frozen=True)
class SearchBudget:
    """What a search may spend: epochs, minutes or both; 60 epochs if neither is given.

    max_epochs      of training, over all trials
    max_minutes     of training
    epochs_per_cut  of one trial; a tenth of the budget if not given
    """

    max_epochs: int | None = None
    max_minutes: float | None = None
    epochs_per_cut: int | None = None

    def __post_init__(self) -> None:
        if self.max_epochs is not None and self.max_epochs < 2:
            raise InputError(f"max_epochs must be at least 2, got {self.max_epochs}")
        if self.max_minutes is not None and not 0 < self.max_minutes < math.inf:
            raise InputError(f"max_minutes must be positive and finite, got {self.max_minutes}")
        if self.epochs_per_cut is not None and self.epochs_per_cut < 1:
            raise InputError(f"epochs_per_cut must be at least 1, got {self.epochs_per_cut}")

    def covers(self, other: SearchBudget) -> bool:
        """Whether what the other may spend may be spent here as well.

        >>> [SearchBudget(max_epochs=each).covers(SearchBudget()) for each in (80, 40)]
        [True, False]
        """
        pairs = zip(self._limits(), other._limits(), strict=True)
        return self.epochs_per_cut == other.epochs_per_cut and all(a >= b for a, b in pairs)

    def _limits(self) -> tuple[float, float]:
        """The budget in epochs and in minutes; infinite where it has no limit."""
        epochs = math.inf if self.max_minutes is not None else DEFAULT_EPOCHS
        minutes = math.inf if self.max_minutes is None else self.max_minutes
        return (epochs if self.max_epochs is None else self.max_epochs), minutes

    def trial(self, epochs: int, seconds: float) -> int:
        """The epochs of one cut, once the first epochs have shown how long they take."""
        if self.epochs_per_cut is not None:
            return self.epochs_per_cut
        total = self.max_epochs or DEFAULT_EPOCHS
        if self.max_minutes is not None:
            # However much time there is, more than this for one cut has not been seen to help.
            affordable = int(60 * self.max_minutes * epochs / max(seconds, 1e-9))
            total = min(self.max_epochs or 2 * DEFAULT_EPOCHS, affordable)
        return max(1, total // TRIALS)

    def next_trial(self, epochs: int, seconds: float, wanted: int) -> int:
        """How many epochs the next trial may take: as wanted, a shorter last one, or 0.

        epochs   spent so far
        seconds  spent so far
        wanted   epochs of the trial, if there is no limit
        """
        left = float(wanted)
        if self.max_minutes is None:
            left = (self.max_epochs or DEFAULT_EPOCHS) - epochs
        else:
            if self.max_epochs is not None:
                left = self.max_epochs - epochs
            if epochs:
                left = min(left, (60 * self.max_minutes - seconds) * epochs / seconds)
        allowed = min(wanted, math.floor(left))
        return allowed if allowed >= max(1, wanted // 2) else 0
