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
        padded = F.pad(images, [self.pixels] * 4)
        chosen = torch.randint(reach * reach, (len(images),), generator=generator)
        shifted = torch.empty_like(images)
        for number in range(reach * reach):
            down, right = divmod(number, reach)
            among = chosen == number
            shifted[among] = padded[among, :, down : down + height, right : right + width]
        return shifted
