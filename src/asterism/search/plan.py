"""The dry run: what would be made sparse, what not and why, what it costs, how sensitive it is.

Owns the look at a model before anything is done to it. Whatever it tries, the weights are bit for
bit what they were when it ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

from asterism.errors import InputError
from asterism.pruning.scores import count, magnitude
from asterism.pruning.selection import Candidates, select
from asterism.search.limits import UNTRAINED, Goal
from asterism.search.task import Evaluate, TaskLike, check_task
from asterism.weights.initial import is_untrained
from asterism.weights.macs import macs
from asterism.weights.metrics import modes_kept
from asterism.weights.targets import Candidate, survey

DENSITIES = (0.5, 0.25, 0.1, 0.05)
HARMLESS = 0.1
"""A cut is harmless that moves the metric by at most this share of the worst change seen."""
SMALL = 0.05
"""A layer with less than this share of the weights is worth more whole, if it is sensitive."""


@dataclass(frozen=True)
class Row:
    """One parameter of the model.

    name     as in the model's `named_parameters`
    shape    of the tensor
    touched  whether it would be made sparse
    reason   why, or why not
    also     further names of the same parameter
    macs     multiply-accumulates per example, where example inputs were given
    metrics  by density, the metric with this weight alone cut by magnitude
    """

    name: str
    shape: tuple[int, ...]
    touched: bool
    reason: str
    also: tuple[str, ...] = ()
    macs: int | None = None
    metrics: dict[float, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Suggestion:
    """Where to start.

    densities  by name, for `prune`
    exclude    the layers that are worth more whole
    density    the share of all weights that would stay
    why        in a few words
    """

    densities: dict[str, float]
    exclude: tuple[str, ...]
    density: float
    why: str

    def __str__(self) -> str:
        spared = f", exclude={list(self.exclude)}" if self.exclude else ""
        by_layer = ", ".join(f"{name} {each:.4g}" for name, each in self.densities.items())
        layers = f"\nby layer: {by_layer}" if by_layer else ""
        return f"to start with: density={self.density:.3g}{spared} ({self.why}){layers}"


@dataclass(frozen=True)
class Plan:
    """The dry run of a search; `str` makes it a table.

    rows        one for each parameter
    metric      of the model as it is
    suggestion  where to start
    doubt       why the model may not be trained, which all of this is worth nothing without
    """

    rows: tuple[Row, ...]
    metric: float | None
    suggestion: Suggestion
    doubt: str = ""

    @property
    def touched(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.touched)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; a metric that is not a number becomes null."""
        rows = []
        for row in self.rows:
            metrics = {str(density): _finite(value) for density, value in row.metrics.items()}
            rows.append(asdict(row) | {"size": row.size, "metrics": metrics})
        suggestion = asdict(self.suggestion)
        found = {"metric": self.metric, "parameters": rows, "suggestion": suggestion}
        return {**found, "doubt": self.doubt}

    def __str__(self) -> str:
        densities = sorted({each for row in self.rows for each in row.metrics}, reverse=True)
        tried = [f"at {each:.4g}" for each in densities]
        heads = ["parameter", "shape", "weights", "MACs", *tried, ""]
        lines = align([heads, *(_cells(row, densities) for row in self.rows)])
        sizes = f"{sum(row.size for row in self.touched):,} of {sum(r.size for r in self.rows):,}"
        metric = "" if self.metric is None else f"; the metric of the model is {self.metric:.4g}"
        summary = f"{sizes} parameters would be made sparse{metric}"
        advice = [self.doubt or str(self.suggestion)] if self.touched else []
        return "\n".join([*lines, "", summary, *advice])


def plan(
    model: nn.Module,
    task: TaskLike | None = None,
    *,
    example_inputs: Any = None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    densities: Sequence[float] = DENSITIES,
) -> Plan:
    """The dry run of `sparsify`: what would be made sparse, what not and why, and at what cost.

    model           left as it is, bit for bit
    task            as for `sparsify`; its `evaluate` is called once for the model as it is and once
                    for each layer and density, and a little data will do. Its `example_inputs`, if
                    it has any, are used where none are given
    example_inputs  what the model is called with (a tensor, tuple or mapping), for the
                    multiply-accumulates
    include         patterns over layers: only these would be made sparse
    exclude         patterns over layers: these would not be touched
    densities       to which each layer is cut in turn, by magnitude, the others left whole

    >>> found = plan(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), exclude=["2"])
    >>> [(row.name, row.size) for row in found.touched]
    [('0.weight', 12)]
    >>> print(str(found).splitlines()[-3])
    12 of 23 parameters would be made sparse
    """
    candidates = survey(model, include, exclude)
    if task is not None:
        check_task(task)
        if example_inputs is None and hasattr(task, "example_inputs"):
            example_inputs = task.example_inputs(model)
    work = {} if example_inputs is None else macs(model, example_inputs)
    with modes_kept(model):
        metric = None if task is None else _dense_metric(model, task.evaluate)
        rows = [
            _row(each, work.get(each.param), _sensitivity(model, task, each, densities))
            for each in candidates
        ]
        doubt = _doubt(model, task, metric, [each.param for each in candidates if each.chosen])
    return Plan(tuple(rows), metric, suggest(rows, metric), doubt)


def _doubt(
    model: nn.Module, task: TaskLike | None, metric: float | None, params: list[nn.Parameter]
) -> str:
    """Why the model may not be trained, or nothing."""
    if is_untrained(model):
        return UNTRAINED
    if task is None or metric is None or not params:
        return ""
    with ExitStack() as stack:
        for param in params:
            stack.enter_context(_cut(param, 1 / param.numel()))
        ruined = float(task.evaluate(model))
    if Goal(0.0, task.higher_is_better).drop(metric, ruined) > 0:
        return ""
    return f"with hardly a weight left the metric is {ruined:.4g}, no worse: is the model trained?"


def _row(candidate: Candidate, work: int | None, tried: dict[float, float]) -> Row:
    return Row(
        name=candidate.name,
        shape=tuple(candidate.param.shape),
        touched=candidate.chosen,
        reason=candidate.reason,
        also=candidate.names[1:],
        macs=work,
        metrics=tried,
    )


def suggest(rows: Sequence[Row], metric: float | None) -> Suggestion:
    """For each layer the lowest density that was tried and did no harm.

    Harm is judged without retraining, against the worst that was seen: with it, half of that
    density is often within reach. Without a metric, a tenth of every layer.
    """
    touched = [row for row in rows if row.touched]
    total = sum(row.size for row in touched)
    if metric is None or not any(row.metrics for row in touched):
        densities = {row.name: 0.1 for row in touched}
        return Suggestion(densities, (), 0.1 if touched else 1.0, "no metric to go by")
    changes = [_change(value, metric) for row in touched for value in row.metrics.values()]
    allowed = HARMLESS * max((each for each in changes if each < math.inf), default=0.0)
    densities = {row.name: _lowest_harmless(row, metric, allowed) for row in touched}
    spared = [row for row in touched if densities[row.name] == 1 and row.size < SMALL * total]
    kept = sum(densities[row.name] * row.size for row in touched)
    cut = {row.name: densities[row.name] for row in touched if row not in spared}
    return Suggestion(
        densities=cut,
        exclude=tuple(row.name for row in spared),
        density=kept / total if total else 1.0,
        why=f"each layer alone moves the metric by at most {allowed:.3g}, without retraining",
    )


def _cells(row: Row, densities: Sequence[float]) -> list[str]:
    return [
        " = ".join([row.name, *row.also]),
        "×".join(map(str, row.shape)) or "1",
        f"{row.size:,}",
        "–" if row.macs is None else f"{row.macs:,}",
        *(f"{row.metrics[each]:.4g}" if row.metrics else "–" for each in densities),
        row.reason if row.touched else f"left alone: {row.reason}",
    ]


def _lowest_harmless(row: Row, metric: float, allowed: float) -> float:
    """Going down from 1 until the first cut that does harm."""
    lowest = 1.0
    for density in sorted(row.metrics, reverse=True):
        if _change(row.metrics[density], metric) > allowed:
            break
        lowest = density
    return lowest


def _change(value: float, metric: float) -> float:
    return abs(value - metric) if math.isfinite(value) else math.inf


def _dense_metric(model: nn.Module, evaluate: Evaluate) -> float:
    metric = float(evaluate(model))
    if not math.isfinite(metric):
        raise InputError(f"evaluate gave {metric} for the model as it is: expected a finite number")
    return metric


def _sensitivity(
    model: nn.Module, task: TaskLike | None, candidate: Candidate, densities: Sequence[float]
) -> dict[float, float]:
    """By density, the metric with this weight alone cut to it."""
    found: dict[float, float] = {}
    if task is None or not candidate.chosen:
        return found
    for density in densities:
        with _cut(candidate.param, density):
            found[density] = float(task.evaluate(model))
    return found


@contextmanager
def _cut(param: nn.Parameter, density: float) -> Iterator[None]:
    """The weight cut by magnitude for the block, as it was after it."""
    before = param.detach().clone()
    keep = max(count(density, param.numel()), 1)
    mask = select([Candidates(before)], keep, magnitude)[0].mask()
    try:
        with torch.no_grad():
            param.masked_fill_(~mask, 0.0)
        yield
    finally:
        with torch.no_grad():
            param.copy_(before)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first and last column to the left, those between, which are numbers, to the right.

    >>> align([["layer", "weights", ""], ["fc", "12", "dense"]])
    ['layer  weights', 'fc          12  dense']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.ljust(width) if place in (0, last) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
