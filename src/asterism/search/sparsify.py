"""sparsify(): the sparsest network within a tolerance, in one call.

Owns the arguments and the promise that the model ends as the best found, whatever happens. The
search itself is `asterism.search.strategy`, what it has found `asterism.search.state`, one trial
`asterism.search.trial`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from asterism.search.folder import Files, open_folder
from asterism.search.options import SparsifyOptions
from asterism.search.pareto import Point, TrialRecord
from asterism.search.progress.display import Table, showing
from asterism.search.state import SearchState, Watch
from asterism.search.strategy import Search
from asterism.search.task import TaskLike, check_task
from asterism.search.trial import MakeOptimizer, Trainer, check_model
from asterism.storage.provenance import provenance
from asterism.weights.metrics import modes_kept
from asterism.weights.wiring import wiring

if TYPE_CHECKING:
    from asterism.search.options import NamedPenalty

ABOUT = "about.json"
"""When and with what a search was begun, the metric's name, and how the layers are connected."""


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
    history: list[TrialRecord]
    stop_reason: str
    best: Point


def sparsify(
    model: nn.Module,
    task: TaskLike,
    *,
    max_drop: float,
    max_epochs: int | None = None,
    max_minutes: float | None = None,
    epochs_per_cut: int | None = None,
    reweighting: float = 0.2,
    optimizer: str | MakeOptimizer | None = None,
    lr: float | None = None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    penalty: NamedPenalty | Mapping[str, NamedPenalty] | None = None,
    densities: Mapping[str, float] | None = None,
    run: str | Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
    progress: bool | None = None,
) -> SparsifyResult:
    """Makes a trained model as sparse as it gets with its metric within `max_drop` of the dense.

    model     trained; changed in place, and whatever happens it ends holding the best weights found
              so far. Zeros in it stay zero
    task      what to train and how to measure it: `supervised(train_loader, valid_loader)`,
              `Task(fit, evaluate)`, or anything else that has `fit`, `evaluate` and
              `higher_is_better`
    run       a folder to keep the search in; it is locked meanwhile, and claimed once the first
              call of `fit` was successful
    resume    whether to continue the search that the folder holds
    watch     called with each record of the history
    progress  a bar in a terminal or a notebook, lines on standard error elsewhere; False for
              neither. `logging.getLogger("asterism")` gets the lines in any case

    The other arguments are the search's options, which `SparsifyOptions` explains one by one:

    max_drop                                 how much worse than dense the metric may be
    max_epochs, max_minutes, epochs_per_cut  what the search may spend
    optimizer, lr                            how it trains
    reweighting, penalty                     how much of that is re-weighting, by which penalty
    include, exclude, densities              which layers are made sparse, how far each may fall

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(256, 16)
    >>> data = [(x, (x[:, 0] > 0).long())]
    >>> from asterism.search.task import supervised
    >>> model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> task = supervised(data, data)
    >>> task.fit(model, torch.optim.SGD(model.parameters(), lr=0.5), epochs=100)
    >>> result = sparsify(model, task, max_drop=2.0, max_epochs=40)
    >>> result.best.density < 0.5 and task.evaluate(model) == result.best.metric
    True
    """
    options = SparsifyOptions(
        max_drop=max_drop,
        max_epochs=max_epochs,
        max_minutes=max_minutes,
        epochs_per_cut=epochs_per_cut,
        reweighting=reweighting,
        optimizer=optimizer,
        lr=lr,
        include=include,
        exclude=exclude,
        penalty=penalty,
        densities=densities,
    )
    return search(model, task, options, run=run, resume=resume, watch=watch, progress=progress)


def search(
    model: nn.Module,
    task: TaskLike,
    options: SparsifyOptions,
    *,
    run: str | Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
    progress: bool | None = None,
    table: Table | None = None,
    beside: Files | None = None,
) -> SparsifyResult:
    """`sparsify` with its options as one object.

    model, task         as for `sparsify`
    options             already checked
    run, resume, watch  as for `sparsify`
    progress            as for `sparsify`
    table               makes what a terminal shows above the bar
    beside              more JSON to keep in the folder, by the file's name
    """
    check_task(task)
    check_model(model)
    trainer = _trainer(model, task, options)
    config = _config(trainer, options)
    files = None if run is None else {ABOUT: _about(trainer), **(beside or {})}
    with modes_kept(model), open_folder(run, config, resume, files) as folder:
        goal, generators = options.goal(task.higher_is_better), getattr(task, "generators", ())
        with showing(goal, options.budget(), progress, table) as shown:
            trainer = replace(trainer, on_step=shown.step)
            state = SearchState(trainer, goal, folder, generators, watch, shown)
            try:
                Search(trainer, options, state).run()
            finally:
                state.leave_best()
    position = state.position
    return SparsifyResult(model, state.points, position.history, position.stop_reason, state.best)


def _trainer(model: nn.Module, task: TaskLike, options: SparsifyOptions) -> Trainer:
    return Trainer(
        model,
        task,
        options.optimizers()[0],
        include=options.include,
        exclude=options.exclude,
        penalty=options.penalties(),
        densities=options.densities or {},
    )


def _about(trainer: Trainer) -> dict[str, Any]:
    """What a reader of the folder may ask, and what does not identify the search."""
    metric = getattr(trainer.task, "metric", None)
    return {
        **provenance().to_json(),
        "metric": getattr(metric, "__name__", None),
        "wiring": wiring(trainer.model, list(trainer.weights())),
    }


def _config(trainer: Trainer, options: SparsifyOptions) -> dict[str, Any]:
    """What identifies a search."""
    return {
        **options.config(),
        "higher_is_better": trainer.task.higher_is_better,
        "weights": {name: list(weight.shape) for name, weight in trainer.weights().items()},
        "threads": torch.get_num_threads(),
    }
