"""RigL (Evci et al. 2020): sparse from the first step, rewired along the gradient while it trains.

Every `every` steps a share of each layer's smallest weights moves to where the gradient of the
dense network is largest; the share falls from `moved` to 0 along half a cosine, until `until` of
the training is done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from asterism.experiments.data.augmentation import Augment
from asterism.experiments.methods.method import Method, Setup, sgd
from asterism.experiments.training import Stage
from asterism.pruning.scores import count
from asterism.scaling.masked import DropAndGrow
from asterism.scaling.schedules import warmup_cosine


@dataclass(frozen=True)
class RiggedLottery(Method):
    """Trains `density` of the weights from the network's initial values, at random places at first.

    density       the share of all weights; layers get theirs as Erdős–Rényi-kernel graphs do
    epochs        of the whole training
    every         steps from one rewiring to the next
    moved         the share of the weights that the first rewiring moves
    until         the part of the training after which the places stay
    lr            the highest learning rate
    weight_decay  of the inner optimizer
    augment       changes the images of each batch
    """

    density: float = 0.05
    epochs: int = 32
    every: int = 100
    moved: float = 0.3
    until: float = 0.75
    lr: float = 0.1
    weight_decay: float = 5e-4
    augment: Augment | None = None

    from_scratch = True

    @property
    def cut(self) -> str:
        return "none: sparse from the start"

    def setup(self, model: nn.Module, seed: int = 0) -> Setup:
        optimizer = DropAndGrow(sgd(model, self.weight_decay), model, freeze_zeros=False)
        optimizer.prune(masks=random_masks(optimizer.weights(), self.density, seed))
        share = 0.0

        def decide(optimizer: DropAndGrow, progress: float) -> None:
            nonlocal share
            due = optimizer.steps and optimizer.steps % self.every == 0 and progress < self.until
            share = self.moved * (1 + math.cos(math.pi * progress / self.until)) / 2 if due else 0.0

        def rewire(optimizer: DropAndGrow, *_: Any) -> None:
            if share:
                optimizer.rewire(share)

        optimizer.register_step_pre_hook(rewire)  # the gradient is there, and not yet used
        stage = Stage(
            "train",
            self.epochs,
            warmup_cosine(self.lr),
            on_step=decide,
            whole=lambda: share > 0,
        )
        return Setup(optimizer, [stage], self.augment)


def random_masks(weights: Mapping[str, Tensor], density: float, seed: int) -> dict[str, Tensor]:
    """Random places in each layer, as many as `erdos_renyi` says.

    weights  by name
    density  the share of all weights together
    seed     of the places
    """
    generator = torch.Generator().manual_seed(seed)
    shares = erdos_renyi({name: tuple(weight.shape) for name, weight in weights.items()}, density)
    masks = {}
    for name, weight in weights.items():
        places = torch.randperm(weight.numel(), generator=generator)
        mask = torch.zeros(weight.numel(), dtype=torch.bool)
        mask[places[: count(shares[name], weight.numel())]] = True
        masks[name] = mask.view(weight.shape)
    return masks


def erdos_renyi(shapes: Mapping[str, tuple[int, ...]], density: float) -> dict[str, float]:
    """Each layer's density: in proportion to the sum of its dimensions over their product.

    Where that asks for more than all weights of a layer, the layer stays dense, and the others get
    less. Together they have `density` of all weights.

    >>> erdos_renyi({"wide": (100, 100), "narrow": (5, 5)}, 0.1)
    {'wide': 0.09775, 'narrow': 1.0}
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    dense: set[str] = set()
    while True:
        left = density * sum(sizes.values()) - sum(sizes[name] for name in dense)
        weight = {name: sum(shape) for name, shape in shapes.items() if name not in dense}
        factor = left / max(sum(weight.values()), 1)
        full = {name for name in weight if factor * weight[name] >= sizes[name]}
        if not full:
            break
        dense |= full
    return {
        name: 1.0 if name in dense else round(factor * weight[name] / sizes[name], 12)
        for name in shapes
    }
