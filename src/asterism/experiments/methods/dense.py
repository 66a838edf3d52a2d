"""Dense: the reference network theta⁰, trained from scratch (`eq:baseline`)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from asterism.experiments.methods.method import Method, Recipe, wrap
from asterism.experiments.training import Stage
from asterism.scaling.schedules import warmup_cosine


@dataclass(frozen=True)
class Dense(Method):
    """Plain training, without re-weighting and without a cut."""

    epochs: int = 10
    lr: float = 0.05
    weight_decay: float = 5e-4

    @property
    def cut(self) -> str:
        return "none"

    def recipe(self, model: nn.Module, seed: int = 0) -> Recipe:
        stage = Stage("train", self.epochs, warmup_cosine(self.lr))
        return Recipe(wrap(model, self.weight_decay), [stage])
