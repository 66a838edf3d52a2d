"""One shape for every kind of run: what it was, and what came of it. Reads and draws nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from asterism.experiments.results import History
from asterism.export.dense_engines import Timing
from asterism.report.published import PublishedPoint
from asterism.search.pareto import TrialRecord
from asterism.storage.provenance import Provenance
from asterism.weights.wiring import Wiring

JsonObject = dict[str, Any]
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Outcome:
    """One point of the trade-off: a number of weights, and the score with them.

    name             of the row or the trial
    nonzeros         the weights that are left, the mean over the seeds
    density_percent  their share of all
    score            with them, the mean over the seeds
    spread           of the score: its sample standard deviation over the seeds
    seeds            how many runs it is the mean of
    network          the key of the network that shows it
    role             "front", "dense", "chosen" or "tried"
    within           whether it is within the tolerance, if there is one
    """

    name: str
    nonzeros: float
    density_percent: float
    score: float
    spread: float | None = None
    seeds: int = 1
    network: str = ""
    role: str = "front"
    within: bool | None = None


@dataclass(frozen=True, eq=False)
class Network:
    """One network, before (where that is known) and after.

    key      that outcomes name it by
    name     as the page shows it
    weights  the names of the parameters that are made sparse
    after    all its tensors
    wiring   by name, the layers that a layer reads
    before   its tensors before
    history  of its training, epoch by epoch
    config   its settings
    model    its name in `asterism.experiments.networks`, if it has one
    bench    what `asterism bench --json` has measured
    """

    key: str
    name: str
    weights: list[str]
    after: State
    wiring: Wiring
    before: State | None = None
    history: History = field(default_factory=list)
    config: JsonObject = field(default_factory=dict)
    model: str | None = None
    bench: list[Timing] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Account:
    """All that a page is made of.

    title             of the page
    summary           lines of its head: what, and its value
    score_name        what is measured
    outcomes          the points of the trade-off
    networks          those that are shown
    published         what others have published for such a network
    tolerance         the worst score that a search was allowed
    higher_is_better  whether a higher score is better
    in_points         whether the score is a percentage
    command           that made the run
    made              when, where and with which versions
    trials            of a search
    """

    title: str
    summary: list[tuple[str, str]]
    score_name: str
    outcomes: list[Outcome]
    networks: list[Network]
    published: tuple[PublishedPoint, ...] = ()
    tolerance: float | None = None
    higher_is_better: bool = False
    in_points: bool = True
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
