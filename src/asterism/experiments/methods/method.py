"""What every method hands to the training loop, and the pieces that several of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from asterism.experiments.data.augmentation import Augment, Distort, Shift
from asterism.experiments.training import Stage
from asterism.scaling.masked import Masked
from asterism.scaling.schedules import Schedule, warmup_cosine
from asterism.scaling.sparse_optimizer import SparseOptimizer


@dataclass(frozen=True)
class Setup:
    """An optimizer around the model, and the stages to train it through."""

    optimizer: SparseOptimizer
    stages: list[Stage]
    augment: Augment | None = None

    @property
    def epochs(self) -> int:
        return sum(stage.epochs for stage in self.stages)

    @property
    def passes(self) -> float:
        """How many times the training images are gone through."""
        return sum(stage.epochs * stage.share for stage in self.stages)


class Method(ABC):
    """The contract of all methods.

    A method of several phases trains each on what the phase before has left, without its dead
    units. One that is `from_scratch` starts from the network's initial values, the others from
    the dense network of their seed.
    """

    from_scratch = False

    @property
    def phases(self) -> tuple[Method, ...]:
        return (self,)

    @property
    def all_images(self) -> bool:
        """Whether validation images are trained on, in any phase."""
        return False

    @property
    @abstractmethod
    def cut(self) -> str:
        """How weights are removed, in the few words that a table has room for."""

    @abstractmethod
    def setup(self, model: nn.Module, seed: int = 0) -> Setup:
        """The optimizer and the stages for this model."""


def images(augment: Augment | None) -> str:
    """What a table says of changed training images, after how weights are removed."""
    if augment is None:
        return ""
    words = {Shift: "shifted", Distort: "distorted"}
    return f", {words.get(type(augment), 'augmented')} images"


def sgd(model: nn.Module, weight_decay: float) -> torch.optim.SGD:
    """With Nesterov momentum; each stage sets its learning rate."""
    return torch.optim.SGD(
        model.parameters(), lr=0.0, momentum=0.9, nesterov=True, weight_decay=weight_decay
    )


def sgd_by_layer(model: nn.Module, weight_decay: float) -> torch.optim.SGD:
    """The same, each parameter with its name and a rate: see `Stage`."""
    optimizer = sgd(model, weight_decay)
    whole = optimizer.param_groups.pop()
    for name, param in model.named_parameters():
        optimizer.add_param_group({**whole, "params": [param], "name": name, "rate": 1.0})
    return optimizer


def wrap(model: nn.Module, weight_decay: float, *, freeze_zeros: bool = False) -> Masked:
    """That SGD, wrapped, for methods that only cut."""
    return Masked(sgd(model, weight_decay), model, freeze_zeros=freeze_zeros)


def gradual_cut(
    fall: Schedule,
    score: str,
    *,
    epochs: tuple[int, int],
    lr: float,
    begin: Callable[[Any], Any],
) -> list[Stage]:
    """Two stages: global cuts along `fall` every 25 steps, then retraining at its last density."""

    def cut(optimizer: SparseOptimizer, progress: float) -> None:
        if optimizer.steps % 25 == 0:
            optimizer.prune(density=fall(progress), score=score, at_most=True)

    def finish(optimizer: SparseOptimizer) -> None:
        optimizer.prune(density=fall(1.0), score=score, at_most=True)

    return [
        Stage("cut", epochs[0], warmup_cosine(lr, final=lr / 2), begin, cut),
        Stage("retrain", epochs[1], warmup_cosine(lr), finish),
    ]
