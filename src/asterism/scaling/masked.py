"""Masked and DropAndGrow: plain training of a network that is sparse already.

Masked       the zeros stay where they are: what retrains a sparse network
DropAndGrow  now and then the smallest weights of each layer are cut, and as many grow where the
             gradient of the dense network is largest (RigL, Evci et al. 2020)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism.errors import InputError
from asterism.scaling.layer import Layer
from asterism.scaling.penalties import Penalty, Scale
from asterism.scaling.sparse_optimizer import SparseOptimizer
from asterism.scaling.stepping import inner_optimizer as inner
from asterism.scaling.stepping.interrupts import uninterrupted
from asterism.weights.sharding import is_sharded


class Masked(SparseOptimizer):
    """Trains the weights that are not zero, and cuts more of them when `prune` is called.

        optimizer = Masked(torch.optim.SGD(model.parameters(), lr=0.05), sparse_model)
        train(sparse_model, optimizer)      # any training loop: the zeros stay

    optimizer         the inner one, of torch's or your own, which takes the steps
    model             whose parameters it trains
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


class DropAndGrow(Masked):
    """Trains the weights that are not zero, and moves them when `rewire` is called.

        optimizer = DropAndGrow(torch.optim.SGD(model.parameters(), lr=0.1), model)
        optimizer.prune(masks=masks)        # sparse from here on
        for number, batch in enumerate(batches):
            loss(model, batch).backward()
            if number % 100 == 0:
                optimizer.rewire(0.3)       # while the gradient of all weights is there
            optimizer.step()

    optimizer         the inner one, of torch's or your own, which takes the steps
    model             whose parameters it trains
    include, exclude  glob patterns over layers; see `asterism.weights.targets`
    freeze_zeros      zeros already in the model count as pruned; False to start from none
    """

    @torch.no_grad()
    @uninterrupted()
    def rewire(self, share: float) -> None:
        """Moves this share of each layer's weights, between `backward` and `step`.

        Those of the smallest magnitude go, and weights of 0 grow where the gradient is largest.
        """
        if not 0 <= share <= 1:
            raise InputError(f"a share of the weights is from 0 to 1, got {share}")
        self._check_unchanged()
        for layer in self._layers:
            if layer.pruned and layer.param.grad is not None:
                self._rewire(layer, layer.param.grad, share)

    def _rewire(self, layer: Layer, grad: Tensor, share: float) -> None:
        if is_sharded(layer.param):
            raise InputError(f"{layer.name} is sharded, and rewire compares all of its weights")
        before = layer.kept
        moving = int(share * layer.nonzeros)
        staying = before & ~_largest(-layer.param.abs(), before, moving)
        kept = staying | _largest(grad.abs(), ~staying, moving)
        layer.move(kept.to(layer.omega.dtype), layer.param * staying)
        inner.forget_pruned(self.optimizer, layer.param, staying)


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


def _largest(values: Tensor, among: Tensor, count: int) -> Tensor:
    """A mask of the `count` largest values, out of those where `among` is true."""
    allowed = values.masked_fill(~among, -torch.inf).flatten()
    chosen = torch.zeros_like(allowed, dtype=torch.bool)
    chosen[allowed.topk(count).indices] = True
    return chosen.view(values.shape)
