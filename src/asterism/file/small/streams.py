"""The stream of the small mode: flags, numbers, texts, masks and indices, coded in turn.

One description serves both directions: a stream that writes takes each item and returns it; one
that reads ignores what it is given and returns the item. There are two kinds with the same bits, in
Python (`reference.py`) and in C (`compiled.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from asterism.file.small.units import Grid
from asterism.file.tensors import MAX_RANK

Mask = NDArray[np.bool_]
Places = NDArray[np.intp]
Indices = NDArray[Any]

RECENT_SIZES = 4


class Slot(IntEnum):
    """Kinds of numbers, each with its own statistics."""

    COUNT = 0
    DTYPE = 1
    RANK = 2
    SIZE = 3
    CONSTANT_SHIFT = 4
    CONSTANT = 5
    SHIFT = 6
    LOW = 7
    TABLE = 8
    FIRST = 9
    GAP = 10


class Flag(IntEnum):
    """Kinds of flags, each with its own statistics."""

    CONSTANT = 0
    DENSE = 1
    NEGATIVE = 2
    RECENT = 3  # and the places after it: is a size the first, second … of the recent ones?
    ORDERED = RECENT + MAX_RANK * RECENT_SIZES


FLAGS = Flag.ORDERED + 1


class Stream(Protocol):
    """FormatError wherever the bytes that are read make no sense."""

    @property
    def decoding(self) -> bool: ...

    @property
    def used(self) -> float:
        """The bits of information read so far."""

    def flag(self, value: bool, flag: int) -> bool: ...

    def number(self, value: int, slot: int) -> int: ...

    def numbers(self, values: Sequence[int], slot: int) -> list[int]:
        """Numbers of one kind; a stream that reads takes no more from `values` than how many."""

    def text(self, text: bytes) -> bytes: ...

    def bits(self, bits: Mask, hints: bytes) -> Mask:
        """One bit per unit, in the light of a hint for each."""

    def rows(self, mask: Mask, grid: Grid, rows: Places, channels: Places, hints: bytes) -> None:
        """The elements of a mask, in place; a stream that reads fills them in.

        mask      of the grid's shape
        grid      the shape of the tensor as rows, channels and places
        rows      the numbers of the live rows
        channels  the numbers of the live channels
        hints     a level for each live channel
        """

    def indices(self, index: Indices, where: Places, grid: Grid, size: int) -> Indices:
        """The indices of elements into their table.

        index  the indices
        where  the flat places of the elements
        grid   the shape of the tensor as rows, channels and places
        size   the entries of the table, more than one
        """

    def finish(self) -> bytes:
        """The bytes written; of a stream that reads none, but it must be at its end."""
