"""Further down from a sparse network, and long retraining of the few weights that stay.

What makes this affordable is that a sparse network has dead units: its retraining runs on the
compacted network, at a fraction of the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from asterism.augmentation import Shift
from asterism.errors import InputError
from asterism.methods.recipe import Method, Recipe, gradual_cut, wrap
from asterism.scaling import AffineScaling
from asterism.schedules import geometric


@dataclass(frozen=True)
class Polish(Method):
    """Global cuts from the weights that are there down to `nonzeros`, then retraining.

    shift  in pixels, by which the training images move at random; 0 for none
    """

    nonzeros: int = 1540
    cut_epochs: int = 20
    retrain_epochs: int = 110
    shift: int = 0
    score: str = "lamp"
    lr: float = 0.05
    weight_decay: float = 2e-4

    @property
    def cut(self) -> str:
        return f"gradual, global {self.score}" + (", shifted images" if self.shift else "")

    def recipe(self, model: nn.Module, seed: int = 0) -> Recipe:
        optimizer = wrap(model, self.weight_decay, freeze_zeros=True)
        masks = optimizer.masks().values()
        alive, entries = sum(int(mask.sum()) for mask in masks), sum(m.numel() for m in masks)
        if alive < self.nonzeros:
            raise InputError(f"the network has {alive} non-zeros, fewer than {self.nonzeros}")
        stages = gradual_cut(
            geometric(alive / entries, self.nonzeros / entries),
            self.score,
            epochs=(self.cut_epochs, self.retrain_epochs),
            lr=self.lr,
            begin=AffineScaling.flatten,
        )
        return Recipe(optimizer, stages, Shift(self.shift) if self.shift else None)


@dataclass(frozen=True)
class Then(Method):
    """One method after another; the second one on the compacted network."""

    first: Method
    second: Method

    @property
    def phases(self) -> tuple[Method, ...]:
        return (*self.first.phases, *self.second.phases)

    @property
    def cut(self) -> str:
        return self.second.cut

    def recipe(self, model: nn.Module, seed: int = 0) -> Recipe:
        return self.phases[0].recipe(model, seed)
