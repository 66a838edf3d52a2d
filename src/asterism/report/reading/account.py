"""One shape for every kind of run: what it was, and what came of it. Reads and draws nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from asterism.experiments.results import History
from asterism.report.published import PublishedPoint
from asterism.search.pareto import TrialRecord
from asterism.storage.provenance import Provenance
from asterism.weights.wiring import Wiring

Record = dict[str, Any]
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Outcome:
    """One point of the trade-off: a number of weights, and the score with them."""

    name: str
    nonzeros: float
    density_percent: float
    score: float
    spread: float | None = None  # sample standard deviation over the seeds
    seeds: int = 1
    network: str = ""  # the key of the network that shows it
    role: str = "front"  # or "dense", "chosen", "tried"
    within: bool | None = None  # the tolerance, if there is one


@dataclass(frozen=True, eq=False)
class Network:
    """One network, before (where that is known) and after."""

    key: str
    name: str
    weights: list[str]
    after: State
    wiring: Wiring
    before: State | None = None
    history: History = field(default_factory=list)
    config: Record = field(default_factory=dict)
    model: str | None = None  # as named in `asterism.experiments.networks`
    bench: list[Record] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Account:
    """All that a page is made of."""

    title: str
    summary: list[tuple[str, str]]
    score_name: str
    outcomes: list[Outcome]
    networks: list[Network]
    published: tuple[PublishedPoint, ...] = ()
    tolerance: float | None = None
    higher_is_better: bool = False
    in_points: bool = True  # whether the score is a percentage
    command: str | None = None
    made: Provenance = field(default_factory=lambda: Provenance(""))
    trials: list[TrialRecord] = field(default_factory=list)

    @property
    def dense(self) -> Outcome | None:
        return next((each for each in self.outcomes if each.role == "dense"), None)

    @property
    def best(self) -> Outcome | None:
        """What the search chose; of several methods the one with the fewest weights."""
        if self.trials:
            return next((each for each in self.outcomes if each.role == "chosen"), self.dense)
        rows = [each for each in self.outcomes if each.role == "front"]
        return min(rows, key=lambda each: each.nonzeros, default=None)


def duration(seconds: float) -> str:
    """
    >>> duration(42), duration(258.9), duration(7300)
    ('42 s', '4.3 min', '2.0 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
