"""A pool of memory for the tensors of a training step.

What a step of training frees, the next one takes again. New memory would be cleared by the system,
page by page, at each step.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import weakref
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

SMALL = 1 << 16  # bytes, below which torch's own memory is as good
HUGE = 1 << 21  # bytes of a large page


class Memory:
    """Blocks of memory that no tensor uses now, by their size."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[mmap.mmap]] = defaultdict(list)

    def empty(self, shape: Sequence[int]) -> Tensor:
        """A tensor of float32 with anything in it; its memory comes back when nothing uses it."""
        size = 4 * math.prod(shape)
        if size < SMALL:
            return torch.empty(tuple(shape))
        unit = HUGE if size > HUGE // 2 else SMALL
        free = self._free[-(-size // unit) * unit]
        block = free.pop() if free else _new(-(-size // unit) * unit)
        array = (ctypes.c_char * size).from_buffer(block)
        weakref.finalize(array, free.append, block).atexit = False
        return torch.frombuffer(array, dtype=torch.float32).view(tuple(shape))


def _new(size: int) -> mmap.mmap:
    block = mmap.mmap(-1, size)
    with contextlib.suppress(AttributeError, OSError):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block
