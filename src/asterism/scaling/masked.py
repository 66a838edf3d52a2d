"""Masked: a plain optimizer with zeros that stay. What retrains a sparse network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism.scaling.penalties import Penalty, Scale
from asterism.scaling.sparse_optimizer import SparseOptimizer


class Masked(SparseOptimizer):
    """Trains the weights that are not zero, and cuts more of them when `prune` is called.

        optimizer = Masked(torch.optim.SGD(model.parameters(), lr=0.05), sparse_model)
        train(sparse_model, optimizer)      # any training loop: the zeros stay

    include, exclude  glob patterns over layers; see `asterism.weights.targets`
    freeze_zeros      zeros already in the model count as pruned; False to start from none
    """

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        *,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        freeze_zeros: bool = True,
    ) -> None:
        super().__init__(optimizer, model, NoPenalty(), include, exclude, freeze_zeros)


@dataclass(frozen=True)
class NoPenalty(Penalty):
    """g = 0: nothing pulls, and omega stays 1."""

    relative: bool = False
    order = 1

    def value(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        return torch.zeros_like(z)

    def psi(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        return torch.zeros_like(z)

    def omega(self, z: Tensor, scale: Scale = 1.0, previous: Tensor | None = None) -> Tensor:
        return torch.ones_like(z)
