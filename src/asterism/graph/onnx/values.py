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
    """

    number: int
    shape: Sizes
    kind: str = "f"

    @property
    def axis(self) -> int:
        return batch_axis(self.shape)

    @property
    def rows(self) -> int:
        """How many rows of each example a reshape has put into the batch."""
        return self.shape[self.axis] // BATCH

    @property
    def is_plain(self) -> bool:
        """Whether the batch comes first, and is nothing but the batch."""
        return self.shape[0] == BATCH

    def dim(self, axis: int) -> int:
        """The graph's dimension, counted with the batch, for one of ONNX's."""
        axis = axis % len(self.shape) if -len(self.shape) <= axis < len(self.shape) else -1
        if axis in (-1, self.axis):
            raise UnsupportedError("along the batch")
        return axis + (axis < self.axis) + (self.rows > 1)


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


def sizes_of(shape: Sizes) -> Sizes:
    """The graph's shape of one example, for ONNX's of all of them.

    >>> sizes_of((2, BATCH, 128)), sizes_of((12 * BATCH, 7))
    ((2, 128), (12, 7))
    """
    axis = batch_axis(shape)
    rows = shape[axis] // BATCH
    if rows > 1 and math.prod(shape[:axis]) > 1:
        raise UnsupportedError("along the batch")
    return ((rows,) if rows > 1 else ()) + shape[:axis] + shape[axis + 1 :]


def padded(shape: Sizes, rank: int) -> Sizes:
    """With sizes of 1 before it, as shapes are aligned."""
    return (1,) * (rank - len(shape)) + shape


def combined(shapes: list[Sizes]) -> Sizes:
    """The shape of numbers combined one by one; all shapes have one rank."""
    for sizes in zip(*shapes, strict=True):
        if len({size for size in sizes if size != 1}) > 1:
            raise UnsupportedError(f"shapes {shapes}")
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*shapes, strict=True))
