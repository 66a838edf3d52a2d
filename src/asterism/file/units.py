"""How a weight is laid out for coding, and what earlier tensors say about its rows and columns.

A weight is a grid of rows (outputs) × channels (inputs) × places (of the kernel). A linear layer
whose inputs are a multiple of an earlier layer's outputs sees them as channels × places too, as
after a flattened convolution. An output that an earlier layer made much of is likely to be used;
one that it never computes is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MEMORY = 8
LEVELS = 16
"""A hint is 0 where nothing is known, else 1 + the bit length of a count, at most 15."""


@dataclass(frozen=True)
class Grid:
    """rows × channels × places, the places in lines of `width`."""

    rows: int
    channels: int
    places: int
    width: int


class Units:
    """The units seen so far: how many weights lead into each."""

    def __init__(self) -> None:
        self._weights: list[Sequence[int]] = []
        self._vector: Sequence[int] = ()

    def grid(self, shape: Sequence[int]) -> Grid:
        rows, channels, places = shape[0], shape[1], math.prod(shape[2:])
        if len(shape) > 2:
            return Grid(rows, channels, places, max(shape[-1], 1))
        known = self._inputs(channels)
        if known and len(known) < channels:
            places = channels // len(known)
            channels = len(known)
        root = math.isqrt(places)
        return Grid(rows, channels, places, root if root * root == places else places)

    def row_hints(self, rows: int) -> list[int]:
        return _hints(self._vector if len(self._vector) == rows else (), rows)

    def channel_hints(self, channels: int) -> list[int]:
        known = self._inputs(channels)
        return _hints(known if len(known) == channels else (), channels)

    def vector_hints(self, length: int) -> list[int]:
        return _hints(next((w for w in self._weights if len(w) == length), ()), length)

    def remember_weight(self, counts: Sequence[int]) -> None:
        self._weights = [counts, *self._weights][:MEMORY]

    def remember_vector(self, bits: Sequence[int]) -> None:
        self._vector = bits

    def _inputs(self, channels: int) -> Sequence[int]:
        """The latest outputs of which so many inputs can be a multiple."""
        return next((w for w in self._weights if len(w) > 1 and channels % len(w) == 0), ())


def _hints(counts: Sequence[int], length: int) -> list[int]:
    if not counts:
        return [0] * length
    return [1 + min(count.bit_length(), LEVELS - 2) for count in counts]
