"""Where a search is at this moment: what a bar shows, without the drawing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from asterism.search.limits import DEFAULT_EPOCHS, Goal, SearchBudget
from asterism.search.pareto import TrialRecord
from asterism.search.progress.words import describe, number, percent


@dataclass
class Status:
    """The trial that runs, and what there is so far.

    goal    the tolerance
    budget  what the search may spend
    """

    goal: Goal
    budget: SearchBudget
    what: str = "measuring the model"
    dense: float = float("nan")
    best: TrialRecord | None = None
    epochs: int = 0  # of the trial that runs
    steps: int = 0  # of the trial that runs; 0 where that is not known
    step: int = 0
    spent: tuple[int, float] = (0, 0.0)  # epochs and seconds before this trial
    began: float = field(default_factory=time.monotonic)
    trial_began: float = field(default_factory=time.monotonic)
    first: float | None = None  # the share that was done when this process began

    def begin(self, what: str, epochs: int, steps: int, spent: tuple[int, float]) -> None:
        """A trial begins.

        what    in words
        epochs  that it will train
        steps   that these take, 0 if not known
        spent   epochs and seconds of all trials before it
        """
        self.what, self.epochs, self.steps, self.step = what, epochs, steps, 0
        self.spent, self.trial_began = spent, time.monotonic()
        if self.first is None:
            self.first = self.share

    def end(self, record: TrialRecord) -> str:
        """A trial has ended; what came of it, in words."""
        if record.trial == "dense" and record.metric is not None:
            self.dense = record.metric
        fewer = self.best is None or record.nonzeros < self.best.nonzeros
        if record.within_tolerance and fewer:
            self.best = record
        self.epochs = self.steps = self.step = 0
        self.spent = record.epochs, record.seconds
        return describe(record, self.goal, self.dense)

    @property
    def in_minutes(self) -> bool:
        """Whether the budget is one of time alone."""
        return self.budget.max_epochs is None and self.budget.max_minutes is not None

    @property
    def total(self) -> float:
        """The budget, in epochs or in minutes."""
        if self.in_minutes:
            return self.budget.max_minutes or 0.0
        return float(self.budget.max_epochs or DEFAULT_EPOCHS)

    @property
    def done(self) -> float:
        """What is spent of the budget."""
        epochs, seconds = self.spent
        if self.in_minutes:
            running = time.monotonic() - self.trial_began if self.epochs else 0.0
            return min((seconds + running) / 60, self.total)
        return min(epochs + self.epochs * self._part, self.total)

    @property
    def share(self) -> float:
        return self.done / self.total

    @property
    def _part(self) -> float:
        """What is done of the trial."""
        return min(self.step / self.steps, 1.0) if self.steps else 0.0

    @property
    def elapsed(self) -> float:
        """Seconds, of this process."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float | None:
        """Seconds, if the rest takes as long as what is done; None as long as nothing is."""
        done = self.share - (self.first or 0.0)
        return self.elapsed * (1 - self.share) / done if done > 0 else None

    def trial_text(self) -> str:
        """The trial that runs, and its epoch."""
        if not self.epochs:
            return self.what
        epoch = min(int(self.epochs * self._part) + 1, self.epochs)
        return f"{self.what}, epoch {epoch} of {self.epochs}"

    def best_text(self) -> str:
        """The best network so far."""
        if self.best is None:
            return ""
        return f"best {percent(self.best.density)} at {number(self.best.metric, self.goal)}"

    def done_text(self) -> str:
        unit = "min" if self.in_minutes else "epochs"
        return f"{self.done:.1f}/{self.total:g} {unit}"

    def time_text(self) -> str:
        """The time that has passed, and about what is left."""
        left = "" if self.left is None else f", {_clock(self.left)} left"
        return f"{_clock(self.elapsed)}{left}"


def _clock(seconds: float) -> str:
    """Seconds as on a clock.

    >>> _clock(75), _clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
