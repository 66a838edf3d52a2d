"""One trial of a search: a call of the task's `fit`, re-weighting or cutting, and a measurement.

Owns what happens around the task's two functions: the optimizer they get, what it does at each
step beside training, and the guards. A trial that fails gives the reason and is for the search to
roll back; an error of the user's own code becomes one line. Knows nothing of what comes next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism.errors import DivergedError, InputError, one_line
from asterism.pruning.masks import TooFewError
from asterism.scaling.penalties import Penalty, ReweightedL1
from asterism.scaling.proximal import ProximalReweighting
from asterism.scaling.schedules import geometric
from asterism.scaling.sparse_optimizer import SparseOptimizer
from asterism.scaling.stepping import inner_optimizer
from asterism.search.layer_floors import Floors, fewest, find_floors, prune_above_floors
from asterism.search.ranks.crew import ALONE, Crew
from asterism.search.ranks.replicas import align
from asterism.search.task import TaskLike, length
from asterism.weights.sharding import any_shard, count_nonzero, local, whole
from asterism.weights.targets import choose

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]

TAU = 0.3
CUTS_PER_TRIAL = 20
CUTTING_SHARE = 0.4
"""The first part of a trial, in which the density falls; the rest retrains."""


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4),
    "adamw": partial(torch.optim.AdamW, lr=1e-3),
}
"""SGD, which left fewer weights on the image networks tried; AdamW where SGD does harm."""


def complete(penalty: Penalty | Mapping[str, Penalty] | None) -> Penalty | Mapping[str, Penalty]:
    """One for every layer: those that no pattern names get the default."""
    if penalty is None:
        return ReweightedL1(TAU)
    if isinstance(penalty, Mapping) and "*" not in penalty:
        return {**penalty, "*": ReweightedL1(TAU)}
    return penalty


def check_model(model: nn.Module) -> None:
    """An error for a model that cannot be trained as it is."""
    if not isinstance(model, nn.Module):
        raise InputError(f"the model must be a torch.nn.Module, found {type(model).__name__}")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            raise InputError(f"{name} is on the meta device, without values: load weights first")
    for name, param in model.named_parameters():
        if not is_finite(param):
            raise InputError(f"{name} holds NaN or infinity: start from a model that is finite")


def is_finite(param: Tensor) -> bool:
    """Whether every entry is, on all ranks."""
    return not any_shard(not bool(local(param).isfinite().all()), param)


class CollapseError(Exception):
    """A trial that must be rolled back; the message says what happened."""


@dataclass(frozen=True, eq=False)
class Trainer:
    """A model and its task, behind guards.

    model      changed in place
    task       what to train and how to measure it
    optimizer  makes the inner optimizer, a fresh one for each trial
    include    patterns: only these layers are made sparse
    exclude    patterns: these layers are not touched
    penalty    what re-weighting lowers
    densities  by pattern, what such layers keep in any case
    on_step    called after each step of training
    crew       the ranks that train together
    trained    the model as `fit` gets it, on several ranks wrapped; None for the model itself
    """

    model: nn.Module
    task: TaskLike
    optimizer: MakeOptimizer
    include: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    penalty: Penalty | Mapping[str, Penalty] | None = None
    densities: Mapping[str, float] = field(default_factory=dict)
    on_step: Callable[[], None] | None = None
    crew: Crew = ALONE
    trained: nn.Module | None = None

    def batches(self) -> int:
        """The batches of an epoch, 0 where the task does not tell."""
        return length(getattr(self.task, "train_loader", ()))

    def sizes(self) -> dict[str, int]:
        return {name: weight.numel() for name, weight in self.weights().items()}

    def floors(self) -> Floors:
        return find_floors(self.densities, self.sizes())

    def fewest(self) -> int:
        """The weights of the sparsest network there can be."""
        return fewest(self.floors(), self.sizes())

    def weights(self) -> dict[str, Tensor]:
        """The parameters to make sparse, by name."""
        chosen = choose(self.model, self.include, self.exclude)
        return {candidate.name: candidate.param.detach() for candidate in chosen}

    def nonzeros(self) -> int:
        return sum(count_nonzero(weight) for weight in self.weights().values())

    def measure(self) -> float:
        """The user's metric, NaN included; the same on every rank."""
        remedy = "give data of the same size, and let evaluate return the metric of all of it"
        return self.crew.same("the metric of evaluate", self._measure(), remedy)

    def _measure(self) -> float:
        try:
            metric = self.task.evaluate(self.model)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"evaluate raised {one_line(error)}") from error
        try:
            return float(metric)
        except (TypeError, ValueError, RuntimeError) as error:
            found = type(metric).__name__
            raise InputError(f"evaluate must return one number, found {found}") from error

    def wrap(self, *, freeze_zeros: bool = False) -> ProximalReweighting:
        """A fresh optimizer, without a pull unless lam is set; groups are cut as the penalty says.

        freeze_zeros  weights that are zero now stay zero
        """
        params = [param for param in self.model.parameters() if param.requires_grad]
        return ProximalReweighting(
            self.optimizer(params),
            self.model,
            complete(self.penalty),
            lam=0.0,
            include=self.include,
            exclude=self.exclude,
            freeze_zeros=freeze_zeros,
        )

    def settle(self, epochs: int) -> int:
        """Plain training at the present zeros; returns the steps that `fit` took."""
        optimizer = self.wrap(freeze_zeros=True)
        self._train(optimizer, epochs)
        return optimizer.steps

    def prune(self, density: float) -> None:
        """Cuts without training."""
        try:
            prune_above_floors(self.wrap(freeze_zeros=True), density, self.floors())
        except TooFewError as error:
            raise CollapseError(str(error)) from error

    def reweight(
        self, epochs: int, strength: tuple[float, float], steps: int, masks: dict[str, Tensor]
    ) -> int:
        """Trains the regularised objective; returns the steps that `fit` took.

        epochs    of training
        strength  what an unopposed weight would lose over the trial, in units of the RMS weight,
                  if lam were at the first value throughout, and at the second: lam rises from
                  one to the other
        steps     that these epochs take
        masks     true where a weight may live: zeros that training makes are not yet for good
        """
        optimizer = self.wrap()
        optimizer.prune(masks=masks)
        rate = max(rate for rate, _ in inner_optimizer.learning_rates(optimizer.optimizer))
        if not rate:
            raise InputError(
                "re-weighting needs the optimizer's learning rate, and it is 0: give it, or"
                " reweighting=0"
            )
        unit = self._scale() / (rate * steps)
        rise = geometric(strength[0] * unit, strength[1] * unit)
        optimizer.lam = lambda step: rise(min(step / steps, 1.0))
        self._train(optimizer, epochs)
        return optimizer.steps

    def cut(self, epochs: int, density: float, steps: int, first: float = 1.0) -> int:
        """Cuts gradually while it trains, then retrains; returns the steps that `fit` took.

        epochs   of training
        density  at the end
        steps    that these epochs take
        first    the density to which it cuts before it trains
        """
        optimizer, floors = self.wrap(freeze_zeros=True), self.floors()
        prune_above_floors(optimizer, first, floors)
        masks = optimizer.masks().values()
        start = sum(map(count_nonzero, masks)) / sum(mask.numel() for mask in masks)
        span = max(1, int(steps * CUTTING_SHARE))
        every = max(1, span // CUTS_PER_TRIAL)
        fall = geometric(start, density)

        def fall_further(*_: Any) -> None:
            if optimizer.steps % every == 0 and optimizer.steps <= span + every:
                self._check_finite()
                progress = min(optimizer.steps / span, 1.0)
                prune_above_floors(optimizer, fall(progress), floors)

        optimizer.register_step_post_hook(fall_further)
        self._train(optimizer, epochs)
        prune_above_floors(optimizer, density, floors)
        return optimizer.steps

    def _train(self, optimizer: SparseOptimizer, epochs: int) -> None:
        masks = {name: ~mask for name, mask in optimizer.masks().items()}
        on_step = self.on_step
        if on_step is not None:
            optimizer.register_step_post_hook(lambda *_: on_step())
        try:
            self.task.fit(self.trained or self.model, optimizer, epochs)
            align(self.model, self.crew)
            self._check_finite()
        except DivergedError as error:
            raise CollapseError(f"training diverged: {error}") from error
        except TooFewError as error:
            raise CollapseError(str(error)) from error
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"fit raised {one_line(error)}") from error
        if not optimizer.steps:
            raise InputError("fit took no step with the optimizer it was given")
        for name, weight in optimizer.weights().items():
            revived = local(weight)[local(masks[name])].any()
            if any_shard(bool(revived), weight):
                raise InputError(
                    f"fit has brought pruned weights of {name} back: let the"
                    " optimizer it is given take every step"
                )
            if not count_nonzero(weight):
                raise CollapseError(f"nothing was left of {name}")

    def _check_finite(self) -> None:
        for name, param in self.model.named_parameters():
            if not is_finite(param):
                raise DivergedError(f"{name} is not finite")

    def _scale(self) -> float:
        """The RMS of the weights that are not zero."""
        weights = self.weights().values()
        energy = sum(float(whole(weight.double().square().sum())) for weight in weights)
        return math.sqrt(energy / max(1, self.nonzeros()))
