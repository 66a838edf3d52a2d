"""Small changes of the training images that leave their labels as they are."""

from __future__ import annotations

import math
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
class Distort:
    """Each image is turned, stretched, slanted and moved, by chance and by at most this much.

    degrees  of a turn
    stretch  of height and width, each on its own: 0.1 for up to a tenth
    slant    of the vertical: 0.1 moves the top by a twentieth of the height
    pixels   of a move, along both axes
    """

    degrees: float = 7.5
    stretch: float = 0.08
    slant: float = 0.1
    pixels: float = 1.0

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        chance = torch.rand(6, len(images), generator=generator) * 2 - 1
        angle, slant = math.radians(self.degrees) * chance[0], self.slant * chance[1]
        across, down = 1 + self.stretch * chance[2:4]
        height, width = images.shape[-2:]
        # From where each pixel is taken, on the scale of `affine_grid`: −1 to 1 along an axis.
        maps = torch.stack(
            [
                *(angle.cos() * across, (slant - angle.sin()) * down),
                self.pixels * 2 / width * chance[4],
                *(angle.sin() * across, angle.cos() * down),
                self.pixels * 2 / height * chance[5],
            ],
            dim=1,
        )
        grid = F.affine_grid(maps.view(-1, 2, 3), list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


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
