"""Further down from a sparse network, and long retraining of the few weights that stay.

What makes this affordable is that only the non-zeros are computed with: as the later phase of a
method it runs on the compacted network, through its live weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import nn

from asterism.experiments.data.augmentation import Augment
from asterism.experiments.methods.method import Method, Setup, gradual_cut, images, wrap
from asterism.scaling.masked import Masked
from asterism.scaling.schedules import geometric


@dataclass(frozen=True)
class Polish(Method):
    """Global cuts from the weights that are there down to at most `nonzeros`, then retraining.

    nonzeros  None for those that are there: no cut
    """

    nonzeros: int | None = None
    cut_epochs: int = 0
    retrain_epochs: int = 20
    augment: Augment | None = None
    score: str = "magnitude"
    lr: float = 0.05
    weight_decay: float = 0.0

    @property
    def cut(self) -> str:
        cut = "none" if self.nonzeros is None else f"gradual, global {self.score}"
        return cut + images(self.augment)

    def setup(self, model: nn.Module, seed: int = 0) -> Setup:
        optimizer = wrap(model, self.weight_decay, freeze_zeros=True)
        masks = optimizer.masks().values()
        alive, entries = sum(int(mask.sum()) for mask in masks), sum(m.numel() for m in masks)
        kept = alive if self.nonzeros is None else min(alive, self.nonzeros)
        stages = gradual_cut(
            geometric(alive / entries, kept / entries),
            self.score,
            epochs=(self.cut_epochs, self.retrain_epochs),
            lr=self.lr,
            begin=Masked.flatten,
        )
        return Setup(optimizer, stages, self.augment)


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
        """Of the last that cuts, with what else the second does."""
        beside = self.second.cut.removeprefix("none")
        cuts = beside == self.second.cut
        return self.second.cut if cuts else self.first.cut.removesuffix(beside) + beside

    @property
    def all_images(self) -> bool:
        return any(phase.all_images for phase in self.phases)

    def setup(self, model: nn.Module, seed: int = 0) -> Setup:
        return self.phases[0].setup(model, seed)


@dataclass(frozen=True)
class OnAllImages(Method):
    """The same on training and validation images: for settings that were chosen before.

    What is then said of validation images is said of images that were trained on.
    """

    method: Method

    @property
    def all_images(self) -> bool:
        return True

    @property
    def phases(self) -> tuple[Method, ...]:
        return tuple(replace(self, method=phase) for phase in self.method.phases)

    @property
    def cut(self) -> str:
        return self.method.cut

    def setup(self, model: nn.Module, seed: int = 0) -> Setup:
        return self.method.setup(model, seed)
