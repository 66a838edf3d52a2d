"""Gradual magnitude pruning (Zhu & Gupta 2017): the control that shows what re-weighting adds.

Density falls along a cubic from 1 while the network trains, then the survivors retrain.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from asterism.experiments.data.augmentation import Augment
from asterism.experiments.methods.method import Method, Setup, gradual_cut, images, wrap
from asterism.scaling.masked import Masked
from asterism.scaling.schedules import cubic


@dataclass(frozen=True)
class GradualMagnitude(Method):
    """Cuts to `density` over `cut_epochs`, then retrains.

    density         the share of all weights that stays
    cut_epochs      over which it falls
    retrain_epochs  at that density
    score           what the cut compares
    lr              the highest learning rate
    weight_decay    of the inner optimizer
    augment         changes the images of each batch
    """

    density: float = 0.0128
    cut_epochs: int = 6
    retrain_epochs: int = 6
    score: str = "lamp"
    lr: float = 0.05
    weight_decay: float = 1e-4
    augment: Augment | None = None

    @property
    def cut(self) -> str:
        return f"gradual, global {self.score}" + images(self.augment)

    def setup(self, model: nn.Module, seed: int = 0) -> Setup:
        stages = gradual_cut(
            cubic(1.0, self.density),
            self.score,
            epochs=(self.cut_epochs, self.retrain_epochs),
            lr=self.lr,
            begin=Masked.flatten,
        )
        return Setup(wrap(model, self.weight_decay), stages, self.augment)
