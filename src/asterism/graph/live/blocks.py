"""Blocks of images, and the calls of the compiled kernels on them.

Values are blocks of images, 16 side by side, as (blocks, channels, height, width, 16). In the last
block some lanes may be no images: whatever they hold, their gradients are zero.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from asterism.graph.live.memory import Memory

LANES = 16  # images side by side, as in kernels/program.h


@dataclass(frozen=True)
class Kernels:
    """The library, and which of its instruction sets."""

    library: ctypes.CDLL
    level: int
    memory: Memory = field(default_factory=Memory)

    def run(self, name: str, sizes: Sequence[int], *given: Tensor | None) -> None:
        """Calls a kernel on as many threads as torch has."""
        numbers = (ctypes.c_int64 * len(sizes))(*sizes)
        places = [None if each is None else each.data_ptr() for each in given]
        call = getattr(self.library, f"asterism_{name}")
        if call(self.level, numbers, *places, torch.get_num_threads()):
            raise MemoryError("no memory for a layer's rows")


def to_blocks(images: Tensor, kernels: Kernels) -> Tensor:
    """(blocks, …, 16), with zeros for the images that are missing in the last block."""
    made: Tensor = _Blocks.apply(images, kernels)  # type: ignore[no-untyped-call]
    return made


class _Blocks(Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, kernels: Kernels) -> Tensor:
        ctx.images = len(images)
        made = kernels.memory.empty((-(-len(images) // LANES), *images.shape[1:], LANES))
        sizes = (len(images), images[0].numel())
        kernels.run("to_blocks", sizes, images.contiguous(), made)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return from_blocks(gradients[0], ctx.images), None


def from_blocks(value: Tensor, images: int) -> Tensor:
    """Blocks of 16 images side by side as images one after the other, (images, …)."""
    return value.movedim(-1, 1).flatten(0, 1)[:images]
