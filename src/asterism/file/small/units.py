"""How a weight is laid out for coding, and what earlier tensors say about its rows and columns.

A weight is a grid of rows (outputs) × channels (inputs) × places (of the kernel). A linear layer
whose inputs are a multiple of an earlier layer's outputs sees them as channels × places too, as
after a flattened convolution. An output that an earlier layer made much of is likely to be used;
one that it never computes is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.integer[Any]]

MEMORY = 8
LEVELS = 16
"""A hint is 0 where nothing is known, else 1 + the bit length of a count, at most 15."""


class Grid(NamedTuple):
    """rows × channels × places, the places in lines of `width`.

    ordered  no live row begins before the live row above
    """

    rows: int
    channels: int
    places: int
    width: int
    ordered: bool = False


class Units:
    """The units seen so far: how many weights lead into each."""

    def __init__(self) -> None:
        self._weights: list[Counts] = []
        self._vector: Counts = np.zeros(0, np.uint8)

    def grid(self, shape: Sequence[int]) -> Grid:
        rows, channels, places = shape[0], shape[1], math.prod(shape[2:])
        if len(shape) > 2:
            return Grid(rows, channels, places, max(shape[-1], 1))
        known = len(self._inputs(channels))
        if 0 < known < channels:
            channels, places = known, channels // known
        root = math.isqrt(places)
        return Grid(rows, channels, places, root if root * root == places else places)

    def row_hints(self, rows: int) -> bytes:
        return _hints(self._vector, rows)

    def channel_hints(self, channels: int) -> bytes:
        return _hints(self._inputs(channels), channels)

    def vector_hints(self, length: int) -> bytes:
        same = (counts for counts in self._weights if len(counts) == length)
        return _hints(next(same, self._vector[:0]), length)

    def remember_weight(self, counts: Counts) -> None:
        self._weights = [counts, *self._weights][:MEMORY]

    def remember_vector(self, counts: Counts) -> None:
        self._vector = counts

    def _inputs(self, channels: int) -> Counts:
        """The latest outputs of which this number of inputs can be a multiple."""
        fitting = (c for c in self._weights if len(c) > 1 and channels % len(c) == 0)
        return next(fitting, self._vector[:0])


def _hints(counts: Counts, length: int) -> bytes:
    if len(counts) != length:
        return bytes(length)
    lengths = np.frexp(counts.astype(np.float64))[1]
    return (1 + np.minimum(lengths, LEVELS - 2)).astype(np.uint8).tobytes()
