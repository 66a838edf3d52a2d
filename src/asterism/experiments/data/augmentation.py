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
