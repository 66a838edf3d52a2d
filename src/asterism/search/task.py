"""What to train and how to measure it: the task that a search is given with the model.

Owns what `sparsify` asks of any task, a task made of two functions, and the common case: two
loaders, a loss and a metric, with one plain loop and one plain evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism.errors import InputError, one_line
from asterism.graph.live_forward import live_if_worth
from asterism.scaling.schedules import warmup_cosine
from asterism.scaling.sparse_optimizer import SparseOptimizer
from asterism.search.ranks.crew import ALONE, Crew
from asterism.search.ranks.loaders import count_of, divide
from asterism.search.ranks.lockstep import Epoch, SharedEpoch
from asterism.search.ranks.replicas import is_sharded
from asterism.weights.metrics import evaluating

Fit = Callable[[nn.Module, Any, int], Any]
Evaluate = Callable[[nn.Module], Any]
Forward = Callable[..., Any]
Loss = Callable[[Any, Any], Tensor]
Metric = Callable[[Any, Any], Tensor | float]
Inputs = tuple[Any, ...] | dict[str, Any]
"""What a model is called with, by position or by name."""


class TaskLike(Protocol):
    """What a task has: two functions, and which way the metric runs.

    It may also have `generators`, random generators of its own whose state is saved with a run,
    `example_inputs(model)`, a batch for the multiply-accumulates of `plan`, `losses`, the mean
    training loss of each epoch of the last `fit`, for the report, and `shared(crew)`, the same task
    for several ranks.
    """

    @property
    def higher_is_better(self) -> bool:
        """False where the metric is a loss or an error."""

    def fit(self, model: nn.Module, optimizer: Any, epochs: int, /) -> Any:
        """Trains, with every step taken by the optimizer that it is given."""

    def evaluate(self, model: nn.Module, /) -> Any:
        """The metric on validation data; never give it test data."""


@dataclass(frozen=True, eq=False)
class Task:
    """A task of your own two functions.

    fit               fit(model, optimizer, epochs) trains, every step taken by that optimizer; on
                      several ranks the model is wrapped in DistributedDataParallel, and each rank
                      is to train on data of its own
    evaluate          evaluate(model) gives the metric on validation data, the same on every rank
    higher_is_better  False where the metric is a loss or an error
    generators        random generators that `fit` draws from, to be saved with a run

    >>> Task(fit=lambda model, optimizer, epochs: None, evaluate=lambda model: 98.5).evaluate(None)
    98.5
    """

    fit: Fit
    evaluate: Evaluate
    higher_is_better: bool = True
    generators: Sequence[torch.Generator] = ()


def check_task(task: Any) -> None:
    """An error that shows how a task is made, unless this is one."""
    for name in ("fit", "evaluate"):
        if not callable(getattr(task, name, None)):
            raise InputError(
                f"the task has no {name}: give asterism.supervised(train_loader, valid_loader) or"
                f" asterism.Task(fit, evaluate), found {type(task).__name__}"
            )
    if not isinstance(getattr(task, "higher_is_better", None), bool):
        raise InputError(
            "the task must have higher_is_better: True, or False where the metric is a loss,"
            f" found {getattr(task, 'higher_is_better', None)!r}"
        )


def accuracy_percent(outputs: Tensor, targets: Tensor) -> float:
    """The percentage of targets that are the index of the largest output along dim 1.

    >>> accuracy_percent(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 1]))
    50.0
    """
    if not isinstance(outputs, Tensor):
        raise InputError(
            f"accuracy is that of one output, and the network gives a {type(outputs).__name__}:"
            " give a metric of your own"
        )
    return 100 * int((outputs.argmax(1) == targets).sum()) / targets.numel()


@dataclass(frozen=True, eq=False)
class Supervised:
    """The task of a pair of loaders, a loss and a metric; `supervised` makes it.

    train_loader, valid_loader  give batches of (inputs, …, targets), or dicts with labels
    loss, metric                functions of the model's output and the targets
    higher_is_better            False where the metric is a loss or an error
    clip_norm                   clips the gradient's norm, if given
    amp                         whether the forward pass is computed in bfloat16
    generators                  the loaders' own random generators, whose state a run saves
    losses                      the mean training loss of each epoch of the last `fit`
    crew                        the ranks that train and measure together
    """

    train_loader: Iterable[Any]
    valid_loader: Iterable[Any]
    loss: Loss
    metric: Metric
    higher_is_better: bool
    clip_norm: float | None = None
    amp: bool = False
    generators: Sequence[torch.Generator] = field(init=False)
    losses: list[float] = field(init=False, default_factory=list)
    crew: Crew = ALONE

    def __post_init__(self) -> None:
        object.__setattr__(self, "generators", _generators(self.train_loader, self.valid_loader))

    def keys(self) -> NoReturn:
        """The error of `**task`."""
        raise InputError("a task is passed as it is: sparsify(model, task, max_drop=…)")

    def shared(self, crew: Crew) -> Supervised:
        """The same task for several ranks, each with its part of every batch."""
        loaders = {
            "train_loader": divide(self.train_loader, crew, "training"),
            "valid_loader": divide(self.valid_loader, crew, "validation"),
        }
        return self if crew.size == 1 else replace(self, **loaders, crew=crew)

    def fit(self, model: nn.Module, optimizer: Optimizer, epochs: int) -> None:
        """Trains; each call warms the learning rate up to the optimizer's and lets it fall.

        A network with few weights left is trained through these alone, where that is possible.
        """
        model.train()
        self.losses.clear()
        forward: Forward | None = None
        peaks = [group["lr"] for group in optimizer.param_groups]
        shape = warmup_cosine(1.0)
        batches = length(self.train_loader)
        for number in range(epochs):
            epoch = self._epoch(self.train_loader, "training", model, number + 1)
            for inputs, targets in epoch:
                within = epoch.steps / (batches + 1) if batches else 0.5
                for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                    group["lr"] = peak * shape((number + within) / epochs)
                if forward is None:
                    forward = self._forward(model, optimizer, inputs)
                optimizer.zero_grad()
                with self._precision(model):
                    loss = self.loss(answer(forward, inputs), targets)
                torch.autograd.backward(epoch.weigh(loss))
                if self.clip_norm is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), self.clip_norm)
                optimizer.step()
            if not epoch.steps:
                raise InputError("the training loader is empty: it gave no batch")
            self.losses.append(epoch.mean)

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> float:
        """The metric over the validation loader: the mean over batches, weighted by their size."""
        total, size = 0.0, 0
        loader, alone = self.valid_loader, not is_sharded(model)
        with evaluating(model):
            for inputs, targets in self._epoch(loader, "validation", model, alone=alone):
                with self._precision(model):
                    outputs = answer(model, inputs)
                count = count_of(loader, targets)
                total += float(self.metric(outputs, targets)) * count if count else 0.0
                size += count
        whole_total, whole_size = self.crew.add(total, size)
        if not whole_size:
            raise InputError("the validation loader is empty: it gave no batch")
        return whole_total / whole_size

    def _epoch(
        self,
        loader: Iterable[Any],
        what: str,
        model: nn.Module,
        number: int = 1,
        alone: bool = False,
    ) -> Epoch[tuple[Inputs, Any]]:
        """The batches of an epoch, which all ranks take together unless each may be alone."""
        batches = _batches(loader, what, model)
        if alone or self.crew.size == 1:
            return Epoch(batches, number)
        return SharedEpoch(
            batches, number, self.crew, what, lambda batch: count_of(loader, batch[1])
        )

    def _forward(self, model: nn.Module, optimizer: Optimizer, inputs: Inputs) -> Forward:
        """The model; in one process the fastest way to compute what it does."""
        if self.amp or self.crew.size > 1:
            return model
        return _fastest(model, optimizer, inputs)

    def _precision(self, model: nn.Module) -> torch.autocast:
        return torch.autocast(device_of(model).type, torch.bfloat16, enabled=self.amp)

    def example_inputs(self, model: nn.Module) -> Inputs:
        """The inputs of the first validation batch."""
        for inputs, _ in _batches(self.valid_loader, "validation", model):
            return inputs
        raise InputError("the validation loader is empty: it gave no batch")


def supervised(
    train_loader: Iterable[Any],
    valid_loader: Iterable[Any],
    loss: Loss = F.cross_entropy,
    metric: Metric = accuracy_percent,
    higher_is_better: bool = True,
    *,
    clip_norm: float | None = None,
    amp: bool = False,
) -> Supervised:
    """The task of two loaders of (inputs, …, targets), for `sparsify` and `plan`.

    Inputs and targets may be numpy's arrays. A batch may also be a dict, as Hugging Face's
    collators make it: the model is called with its entries by name, all but the labels, and of
    what it returns the `logits` are taken.

    train_loader      to train on
    valid_loader      to measure on; never give it test data
    loss              a function of the model's output and the targets
    metric            another; it is averaged over batches: for a metric that is no mean, write
                      your own `evaluate` and give `Task(fit, evaluate)`
    higher_is_better  False where the metric is a loss or an error
    clip_norm         clips the gradient's norm, if given
    amp               computes the forward pass in bfloat16 (torch.autocast); weights stay float32

    >>> batches = [(torch.randn(8, 4), torch.zeros(8, dtype=torch.long))]
    >>> task = supervised(batches, batches)
    >>> model = nn.Linear(4, 2)
    >>> task.fit(model, torch.optim.SGD(model.parameters(), lr=1.0), epochs=20)
    >>> task.evaluate(model)
    100.0
    """
    return Supervised(train_loader, valid_loader, loss, metric, higher_is_better, clip_norm, amp)


def answer(forward: Forward, inputs: Inputs) -> Any:
    """What a model gives for a batch; of an output with several parts the logits."""
    output = forward(**inputs) if isinstance(inputs, dict) else forward(*inputs)
    return getattr(output, "logits", output)


def device_of(model: nn.Module) -> torch.device:
    """Where a model's parameters are."""
    first = next(model.parameters(), None)
    return torch.device("cpu") if first is None else first.device


def _fastest(model: nn.Module, optimizer: Optimizer, inputs: Inputs) -> Forward:
    if not isinstance(optimizer, SparseOptimizer) or isinstance(inputs, dict) or _drops(model):
        return model
    return live_if_worth(model, optimizer.masks, inputs) or model


def _drops(model: nn.Module) -> bool:
    """Whether there is dropout, which no other way has: tracing such a model is for nothing."""
    return any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules())


LABELS = ("labels", "label", "targets", "target")
"""The targets in a batch that is a dict, the first that it has."""


def _batches(loader: Iterable[Any], what: str, model: nn.Module) -> Iterator[tuple[Inputs, Any]]:
    """(inputs, targets) on the model's device; an error of the loader's, in a line of its own."""
    device = device_of(model)
    iterator, number = None, 0
    while True:
        try:
            iterator = iter(loader) if iterator is None else iterator
            batch = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            raise InputError(
                f"after {number} batches the {what} loader raised {one_line(error)}"
            ) from error
        if isinstance(batch, Mapping):
            number += 1
            yield _split({name: _to(each, device) for name, each in batch.items()}, what)
            continue
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise InputError(
                f"the {what} loader must give (inputs, targets), found {type(batch).__name__}:"
                " write your own fit and evaluate, and give asterism.Task(fit, evaluate)"
            )
        number += 1
        *inputs, targets = (_to(each, device) for each in batch)
        yield tuple(inputs), targets


def _split(batch: dict[str, Any], what: str) -> tuple[Inputs, Any]:
    """A batch by names: its inputs, and its targets."""
    label = next((name for name in LABELS if name in batch), None)
    if label is None:
        raise InputError(
            f"the {what} loader gives a dict of {', '.join(batch)} without labels: name the"
            f" targets {LABELS[0]}"
        )
    targets = batch.pop(label)
    return batch, targets


def _to(value: Any, device: torch.device) -> Any:
    """A tensor on the model's device; one of numpy's arrays becomes one, its floats single."""
    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value.astype("float32") if value.dtype == "float64" else value)
    return value.to(device, non_blocking=True) if isinstance(value, Tensor) else value


def length(loader: Iterable[Any]) -> int:
    """The number of batches, or 0 where the loader does not know."""
    try:
        return len(loader)  # type: ignore[arg-type]
    except TypeError:
        return 0


def _generators(*loaders: Any) -> list[torch.Generator]:
    """The random generators that loaders and their samplers were given, each one once."""
    holders = [holder for each in loaders for holder in (each, getattr(each, "sampler", None))]
    found = [getattr(holder, "generator", None) for holder in holders]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())
