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
from typing import Any

import torch
from torch import Tensor

SMALL = 1 << 16  # bytes, below which torch's own memory is as good
HUGE = 1 << 21  # bytes of a large page


class Memory:
    """Blocks of memory, and by their size those that no tensor uses now."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._free: defaultdict[int, list[_Block]] = defaultdict(list)

    def empty(self, shape: Sequence[int]) -> Tensor:
        """A tensor of float32 with anything in it; its memory comes back when nothing uses it."""
        count = math.prod(shape)
        if 4 * count < SMALL:
            return torch.empty(tuple(shape))
        unit = HUGE if 8 * count > HUGE else SMALL
        size = -(-4 * count // unit) * unit
        free = self._free[size]
        if not free:
            free.append(_Block(size, free))
            self._blocks.append(free[0])
        return torch.frombuffer(free.pop().lend(), dtype=torch.float32, count=count).view(shape)


class _Block:
    """Memory that is lent, and back among the free ones when its borrower is gone."""

    def __init__(self, size: int, free: list[_Block]) -> None:
        self._memory = mmap.mmap(-1, size)
        with contextlib.suppress(AttributeError, OSError):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._array, self._free = ctypes.c_char * size, free
        self._borrower: weakref.ref[Any] | None = None

    def lend(self) -> Any:
        array = self._array.from_buffer(self._memory)
        self._borrower = weakref.ref(array, self._take_back)
        return array

    def _take_back(self, _: Any) -> None:
        self._free.append(self)
