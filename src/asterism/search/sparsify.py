"""sparsify(): the sparsest network within a tolerance, in one call.

Owns the arguments and the promise that the model ends as the best found, whatever happens. The
search itself is `asterism.search.strategy`, what it has found `asterism.search.state`, one trial
`asterism.search.trial`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from asterism.errors import InputError
from asterism.scaling.penalties import Penalty
from asterism.search.folder import Journal
from asterism.search.limits import Budget, Goal
from asterism.search.pareto import Point
from asterism.search.state import Ledger, Record
from asterism.search.strategy import Search
from asterism.search.trial import (
    OPTIMIZERS,
    Bench,
    Evaluate,
    Fit,
    MakeOptimizer,
    complete,
)
from asterism.storage.config import describe


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
    reweighting: float = 0.2,
    optimizer: MakeOptimizer | None = None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    penalty: Penalty | Mapping[str, Penalty] | None = None,
    densities: Mapping[str, float] | None = None,
    generators: Sequence[torch.Generator] = (),
    run: str | Path | Journal | None = None,
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
    reweighting       the share of the budget spent on re-weighting before the first cut; 0 for none
    optimizer         makes the inner optimizer from a list of parameters
    include, exclude  glob patterns over layers; see `asterism.weights.targets`
    penalty           of the re-weighting, and with Group(…) what is cut together; one for all
                      layers, or a mapping from patterns. ReweightedL1(0.3) where none is named
    densities         a mapping from patterns: the share of its weights that each such layer keeps
                      in any case
    generators        random generators of your own, to be saved with the run
    run, resume       a folder to keep the search in, and whether to continue what it holds; it is
                      claimed once the first call of `fit` has gone well
    watch             called with each record of the history

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(256, 16)
    >>> data = [(x, (x[:, 0] > 0).long())]
    >>> from asterism.search.supervised import supervised
    >>> model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> task = supervised(data, data)
    >>> task.fit(model, torch.optim.SGD(model.parameters(), lr=0.5), epochs=100)
    >>> result = sparsify(model, **task, max_drop=2.0, max_epochs=40)
    >>> result.best.density < 0.5 and task.evaluate(model) == result.best.metric
    True
    """
    if not 0 <= reweighting < 1:
        raise InputError(f"reweighting is a share of the budget in [0, 1), got {reweighting}")
    goal = Goal(max_drop, higher_is_better)
    budget = Budget(max_epochs, max_minutes, epochs_per_cut)
    optimizers = list(OPTIMIZERS.values()) if optimizer is None else [optimizer]
    bench = Bench(model, fit, evaluate, optimizers[0], include, exclude, penalty, densities or {})
    config = {
        "max_drop": max_drop,
        "higher_is_better": higher_is_better,
        "budget": {each.name: getattr(budget, each.name) for each in fields(budget)},
        "reweighting": reweighting,
        "include": None if include is None else list(include),
        "exclude": None if exclude is None else list(exclude),
        "penalty": describe(complete(penalty)),
        "densities": dict(densities or {}),
        "weights": {name: list(weight.shape) for name, weight in bench.weights().items()},
        "threads": torch.get_num_threads(),
    }
    journal = run if isinstance(run, Journal) else Journal(run)
    journal.begin(config, resume)
    ledger = Ledger(bench, goal, journal, generators, watch)
    search = Search(bench, optimizers, budget, reweighting, ledger)
    try:
        search.run()
    finally:
        ledger.leave_best()
    state = ledger.state
    return SparsifyResult(model, ledger.points, state.history, state.stop_reason, ledger.best)
