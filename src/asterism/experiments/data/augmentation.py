"""Small changes of the training images that leave their labels as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

Augment = Callable[[Tensor, Generator], Tensor]


@dataclass(frozen=True)
class Shift:
    """Each image moves by up to `pixels` along both axes, with zeros where it came from."""

    pixels: int = 1

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        reach = 2 * self.pixels + 1
        height, width = images.shape[-2:]
        windows = F.pad(images, [self.pixels] * 4).unfold(2, height, 1).unfold(3, width, 1)
        chosen = torch.randint(reach * reach, (len(images),), generator=generator)
        every = torch.arange(len(images))
        return windows[every, :, chosen // reach, chosen % reach]


@dataclass(frozen=True)
class Flip:
    """Every other image, by chance, is seen in a mirror."""

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        mirrored = torch.rand(len(images), 1, 1, 1, generator=generator) < 0.5
        return torch.where(mirrored, images.flip(-1), images)


@dataclass(frozen=True)
class Both:
    """One change after the other."""

    first: Augment
    second: Augment

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        return self.second(self.first(images, generator), generator)


CROP_AND_FLIP = Both(Shift(4), Flip())
"""What networks for CIFAR-10 are usually trained with."""
