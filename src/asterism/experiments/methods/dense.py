"""Dense: the reference network theta⁰, trained from scratch (`eq:baseline`)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from asterism.experiments.data.augmentation import Augment
from asterism.experiments.methods.method import Method, Setup, wrap
from asterism.experiments.training import Stage
from asterism.scaling.schedules import warmup_cosine


@dataclass(frozen=True)
class Dense(Method):
    """Plain training, without re-weighting and without a cut."""

    epochs: int = 10
    lr: float = 0.05
    weight_decay: float = 5e-4
    augment: Augment | None = None

    from_scratch = True

    @property
    def cut(self) -> str:
        return "none"

    def setup(self, model: nn.Module, seed: int = 0) -> Setup:
        stage = Stage("train", self.epochs, warmup_cosine(self.lr))
        return Setup(wrap(model, self.weight_decay), [stage], self.augment)
