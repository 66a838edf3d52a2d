"""sparsify(): the sparsest network within a tolerance, in one call.

Owns the arguments and the promise that the model ends as the best found, whatever happens. The
search itself is `asterism.search.strategy`, what it has found `asterism.search.state`, one trial
`asterism.search.trial`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from asterism.errors import InputError
from asterism.search.folder import Files, open_folder
from asterism.search.options import SparsifyOptions
from asterism.search.pareto import Point, TrialRecord
from asterism.search.plan import align
from asterism.search.progress.display import Table, showing
from asterism.search.progress.words import percent
from asterism.search.ranks.crew import Crew, join
from asterism.search.ranks.replicas import plain, replicate
from asterism.search.state import SearchState, Watch
from asterism.search.strategy import Search
from asterism.search.task import TaskLike, check_task
from asterism.search.trial import MakeOptimizer, Trainer, check_model
from asterism.storage.config import differences
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

    def __repr__(self) -> str:
        """A headline, the front, and why the search ended."""
        heads, rows = ("weights", "density", "metric", ""), self._rows()
        return "\n".join([self._headline(), *align([heads, *rows]), f"{self.stop_reason}."])

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        heads = "".join(f"<th>{each}</th>" for each in ("weights", "density", "metric", ""))
        rows = [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in self._rows()]
        table = f"<table><tr>{heads}</tr>{''.join(rows)}</table>"
        return f"<p><b>{escape(self._headline())}</b></p>{table}<p>{escape(self.stop_reason)}.</p>"

    def _headline(self) -> str:
        dense, best = self.history[0], self.best
        fewer = dense.nonzeros / max(best.nonzeros, 1)
        metric = f"metric {best.metric:.6g}, dense {dense.metric:.6g}"
        return f"{best.nonzeros:,} of {dense.nonzeros:,} weights, {fewer:.1f}× fewer; {metric}"

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                f"{point.nonzeros:,}",
                percent(point.density),
                f"{point.metric:.6g}",
                "← the model" if point is self.best else "",
            )
            for point in self.front
        ]


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

    In a script that torchrun has started all ranks call it, and search together: each trains on its
    part of the batches, rank 0 decides, writes the folder, calls `watch` and shows progress.

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
    crew: Crew | None = None,
) -> SparsifyResult:
    """`sparsify` with its options as one object.

    model, task         as for `sparsify`
    options             already checked
    run, resume, watch  as for `sparsify`
    progress            as for `sparsify`
    table               makes what a terminal shows above the bar
    beside              more JSON to keep in the folder, by the file's name
    crew                the ranks that search together; None for those of torchrun, if there are any
    """
    check_task(task)
    check_model(model)
    with join() if crew is None else nullcontext(crew) as crew:
        trainer = _trainer(model, task, options, crew)
        config = _config(trainer, options)
        _check_same(config, crew)
        trainer = replace(trainer, trained=replicate(model, crew))
        files = None if run is None else {ABOUT: _about(trainer), **(beside or {})}
        with modes_kept(model), open_folder(run, config, resume, files, crew) as folder:
            goal = options.goal(task.higher_is_better)
            with showing(goal, options.budget(), progress, table, crew.leads) as shown:
                trainer = replace(trainer, on_step=shown.step)
                generators = getattr(trainer.task, "generators", ())
                state = SearchState(trainer, goal, folder, generators, watch, shown)
                try:
                    Search(trainer, options, state).run()
                finally:
                    state.leave_best()
    position = state.position
    return SparsifyResult(model, state.points, position.history, position.stop_reason, state.best)


def _trainer(model: nn.Module, task: TaskLike, options: SparsifyOptions, crew: Crew) -> Trainer:
    shared = getattr(task, "shared", None)
    return Trainer(
        plain(model),
        task if shared is None else shared(crew),
        options.optimizers()[0],
        include=options.include,
        exclude=options.exclude,
        penalty=options.penalties(),
        densities=options.densities or {},
        crew=crew,
    )


def _check_same(config: dict[str, Any], crew: Crew) -> None:
    """An error where the ranks were not told to search for the same."""
    first, *others = crew.gather({**config, "threads": None})
    for rank, other in enumerate(others, start=1):
        differing = differences(first, other)
        if differing:
            raise InputError(
                f"rank {rank} differs from rank 0 in {', '.join(differing)}: start all ranks with"
                " the same model and options"
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
        **({"ranks": trainer.crew.size} if trainer.crew.size > 1 else {}),
    }
