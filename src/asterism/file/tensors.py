"""A tensor on its way into or out of a file, and the limits both codecs keep."""

from __future__ import annotations

import math
from typing import NamedTuple

from asterism.errors import FormatError
from asterism.file.dtypes import DTYPES, DType, Words

MAX_RANK = 32


class Tensor(NamedTuple):
    """Flat elements as unsigned words, with their shape and what they stand for."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    words: Words


class Usage(NamedTuple):
    """What a tensor takes of a file, in bits: name and shape, positions, values."""

    header: float
    positions: float
    values: float

    @property
    def bytes(self) -> float:
        return (self.header + self.positions + self.values) / 8


def footprint(shape: tuple[int, ...], dtype: DType) -> int:
    """What a tensor counts for: its bytes, but four at least per element, as work takes memory too.

    Sizes beside a zero count as if it were a one: numpy's own limit is on their product.
    """
    return math.prod(max(length, 1) for length in shape) * max(dtype.itemsize, 4)


class Allowance:
    """How many bytes a file may still decode to: asked before memory is taken."""

    def __init__(self, limit: int) -> None:
        self._limit = self._left = limit

    def take(self, name: str, shape: tuple[int, ...], dtype: DType) -> int:
        """The number of elements of a tensor; an error where they would be too many.

        name   of the tensor, for the error
        shape  of the tensor
        dtype  of its elements
        """
        size = math.prod(shape)
        need = footprint(shape, dtype)
        if need > self._left:
            raise FormatError(
                f"{name or 'a tensor'} of shape {shape} would bring the decoded size above"
                f" {self._limit} bytes, the limit for a file of this size"
            )
        self._left -= need
        return size


def dtype_numbered(number: int) -> DType:
    """The element type of this number in a file."""
    if number >= len(DTYPES):
        raise FormatError(f"unknown dtype number {number}: the file needs a newer asterism")
    return DTYPES[number]


def decode_name(text: bytes, taken: set[str]) -> str:
    """A tensor's name, added to those that are taken; an error if it is one of them."""
    try:
        name = text.decode()
    except UnicodeDecodeError:
        raise FormatError(f"a tensor's name is not UTF-8: {text[:40]!r}") from None
    if name in taken:
        raise FormatError(f"two tensors are called {name!r}")
    taken.add(name)
    return name
