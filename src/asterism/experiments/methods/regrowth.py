"""Regrowth: pruned weights come back where the gradient asks for them, and as many others go.

A sparse network that has been trained is rarely the best of its size: which weights were cut was
decided while others still stood for them. A round of regrowth

    looks   for half an epoch, and moves nothing: the mean gradient of each weight, the pruned too
    grows   the pruned weights that promise the most, by mean(grad)² / mean(grad²)
    sinks   all by re-weighted pull, while the cut falls to `nonzeros` again

A Newton step on one weight lowers the loss by half of its squared gradient over its curvature, for
which the mean of the squared gradients stands here, up to a factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from asterism.experiments.data.augmentation import Augment
from asterism.experiments.methods.gradual_reweighting import pull_down_to
from asterism.experiments.methods.method import Method, Setup, gradual_cut, images, sgd
from asterism.scaling.penalties import Penalty, ReweightedL1
from asterism.scaling.proximal import ProximalReweighting
from asterism.scaling.schedules import geometric, warmup_cosine

LOOK = 0.5  # of the first epoch
TINY = 1e-12
NEW = 0.1  # of the median magnitude of its layer, what a weight comes back with


@dataclass(frozen=True)
class Regrowth(Method):
    """One round, from a sparse network to one of at most `nonzeros` weights.

    nonzeros  that stay in the end
    grown     the weights before the cut, in units of `nonzeros`
    epochs    of the round
    penalty   of all layers
    lam       weight of the penalty at the end; it rises tenfold
    score     what the cut compares
    lr        the highest learning rate
    settled   the learning rate at the end, in units of the highest: if small, weights come to rest
              before the next round looks at their gradients
    augment   changes the images of each batch
    """

    nonzeros: int = 1540
    grown: float = 1.4
    epochs: int = 15
    penalty: Penalty = field(default_factory=lambda: ReweightedL1(0.3))
    lam: float = 0.005
    score: str = "magnitude"
    lr: float = 0.05
    settled: float = 0.5
    augment: Augment | None = None

    @property
    def cut(self) -> str:
        return f"gradual, global {self.score}" + images(self.augment)

    def setup(self, model: nn.Module, seed: int = 0) -> Setup:
        optimizer = ProximalReweighting(
            sgd(model, 0.0), model, self.penalty, lam=0.0, freeze_zeros=False
        )
        entries = sum(weight.numel() for weight in optimizer.weights().values())
        start, end = (min(1.0, count / entries) for count in (self.most, self.nonzeros))
        fall, lam = geometric(start, end), geometric(self.lam / 10, self.lam)
        cutting, last = gradual_cut(
            fall, self.score, epochs=(self.epochs, 0), lr=self.lr, begin=lambda _: None
        )
        seen = Gradients()

        def look(optimizer: ProximalReweighting, *_: Any) -> None:
            if seen.looking:
                seen.take(optimizer.weights())
                optimizer.zero_grad(set_to_none=False)  # so that nothing moves

        def grow_and_sink(optimizer: ProximalReweighting, progress: float) -> None:
            seen.looking = progress * self.epochs < LOOK
            if seen.looking:
                return
            if seen.taken:
                seen.grow(optimizer.weights(), self.most)
                seen.forget()
                alive = {name: weight != 0 for name, weight in optimizer.weights().items()}
                optimizer.prune(masks=alive)
                optimizer.reweight()
            cutting.on_step(optimizer, progress)
            pull_down_to(fall(progress), optimizer, lam(progress))

        optimizer.register_step_pre_hook(look)  # the gradient is there, and not yet used
        first = replace(
            cutting,
            name="regrow",
            lr=warmup_cosine(self.lr, final=self.settled * self.lr),
            on_step=grow_and_sink,
            whole=lambda: seen.looking,
        )
        return Setup(optimizer, [first, last], self.augment)

    @property
    def most(self) -> int:
        """The weights before the cut."""
        return round(self.grown * self.nonzeros)


class Gradients:
    """The gradients of every weight over some steps of one epoch, where resumed runs begin.

    looking  whether they are taken now
    """

    def __init__(self) -> None:
        self.looking = False
        self._sums: dict[str, Tensor] = {}
        self._squares: dict[str, Tensor] = {}

    @property
    def taken(self) -> bool:
        return bool(self._sums)

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Adds those of now."""
        for name, weight in weights.items():
            assert weight.grad is not None
            none = torch.zeros_like(weight.grad)
            self._sums[name] = self._sums.get(name, none) + weight.grad
            self._squares[name] = self._squares.get(name, none) + weight.grad.square()

    def forget(self) -> None:
        self._sums, self._squares = {}, {}

    @torch.no_grad()
    def grow(self, weights: Mapping[str, Tensor], most: int) -> None:
        """Zeros that promise the most become weights, up to `most` in all.

        weights  by name, changed in place
        most     zero or not, how many are to be alive
        """
        alive = sum(int(weight.count_nonzero()) for weight in weights.values())
        gains = {
            name: self._sums[name].square() / self._squares[name].clamp_min(TINY) * (weight == 0)
            for name, weight in weights.items()
        }
        flat = torch.cat([gain.flatten() for gain in gains.values()])
        wanted = min(max(0, most - alive), int(flat.count_nonzero()))
        least = flat.topk(wanted).values[-1] if wanted else torch.inf
        for name, weight in weights.items():
            chosen = gains[name] >= least
            size = weight[weight != 0].abs().median() if weight.any() else 0.0
            weight[chosen] = -NEW * size * self._sums[name][chosen].sign()
