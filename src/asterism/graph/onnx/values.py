"""Values of an ONNX network, and where they have their batch.

ONNX knows no batch: it may be any dimension, or several of which one is left of a reshape. Ours is
always the first, and of any size. While a network is read the batch has a size that no network has,
a prime: whatever is computed from shapes shows by it what is the batch, or a multiple of it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from asterism.graph.operations.operation import UnsupportedError

BATCH = 1_000_003  # a prime that is exact as a float32, and its multiples for some way
Sizes = tuple[int, ...]


class Value(NamedTuple):
    """A value of the graph, as ONNX sees it.

    number  the graph's
    shape   ONNX's; one size is BATCH, or a multiple of it
    kind    f for floats, i for whole numbers, b for truth values
    major   of that multiple, how many rows of an example a reshape has put before the batch
    """

    number: int
    shape: Sizes
    kind: str = "f"
    major: int = 1

    @property
    def axis(self) -> int:
        return batch_axis(self.shape)

    @property
    def batch(self) -> tuple[int, ...]:
        """Where the batch is: what values have in common that are combined."""
        return self.axis, self.major, self.shape[self.axis]

    @property
    def inner(self) -> Sizes:
        """What of an example is in the dimension of the batch: rows before it, and after it."""
        rows = self.shape[self.axis] // BATCH // self.major
        return tuple(size for size in (self.major, rows) if size > 1)

    @property
    def sizes(self) -> Sizes:
        """The graph's shape, of one example.

        >>> Value(0, (2, BATCH, 128)).sizes, Value(0, (12 * BATCH, 7)).sizes
        ((2, 128), (12, 7))
        """
        return self.shape[: self.axis] + self.inner + self.shape[self.axis + 1 :]

    @property
    def is_plain(self) -> bool:
        """Whether the batch comes first, and is nothing but the batch."""
        return self.shape[0] == BATCH

    def dim(self, axis: int) -> int:
        """The graph's dimension, counted with the batch, for one of ONNX's."""
        axis = axis % len(self.shape) if -len(self.shape) <= axis < len(self.shape) else -1
        if axis in (-1, self.axis):
            raise UnsupportedError("along the batch")
        return axis + 1 if axis < self.axis else axis + len(self.inner)

    def reshaped(self, shape: Sizes) -> Value:
        """The same numbers in another shape, if no example would get numbers of others."""
        axis = batch_axis(shape)
        before = math.prod(self.shape[: self.axis]) * self.major
        major, rest = divmod(before, math.prod(shape[:axis]))
        if rest or major < 1 or shape[axis] // BATCH % major:
            raise UnsupportedError("along the batch")
        if math.prod(shape) != math.prod(self.shape):
            raise UnsupportedError(f"of {self.shape} to {shape}")
        return Value(self.number, shape, self.kind, major)


class Missing(NamedTuple):
    """A value that is made by an operation which the graph has not."""

    number: int


def batch_axis(shape: Sizes) -> int:
    """Which dimension is the batch; UnsupportedError where none is, or several are.

    >>> batch_axis((2, BATCH, 128))
    1
    """
    found = [axis for axis, size in enumerate(shape) if size and size % BATCH == 0]
    if len(found) != 1:
        raise UnsupportedError("without one batch")
    return found[0]


def padded(shape: Sizes, rank: int) -> Sizes:
    """With sizes of 1 before it, as shapes are aligned."""
    return (1,) * (rank - len(shape)) + shape


def combined(shapes: list[Sizes]) -> Sizes:
    """The shape of numbers combined one by one; all shapes have one rank."""
    for sizes in zip(*shapes, strict=True):
        if len({size for size in sizes if size != 1}) > 1:
            raise UnsupportedError(f"shapes {shapes}")
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*shapes, strict=True))
