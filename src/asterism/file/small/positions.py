"""Which elements of a tensor are not zero, coded bit by bit.

First which rows and which channels have any; then, inside that live sub-grid, a bit per element.
What predicts a bit: its row so far, its column and its channel in the rows above, its place in the
kernel, that place in this row, its neighbours in the kernel, and how many weights lead into the
input it reads.

The units of a network may stand in any order. Where rows are in the order of their first elements,
a row cannot begin before the one above, and is likely to begin soon after: of n rows that saves up
to log₂ n! bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asterism.file.small.mixing import Mixer
from asterism.file.small.ranges import Coder
from asterism.file.small.streams import Mask, Places, Stream
from asterism.file.small.units import LEVELS, Grid

MAX_CELLS = 1 << 16
"""Columns beyond this number share cells: a file must not ask for memory it does not fill."""
_LAST = MAX_CELLS - 1
ENOUGH_ROWS = 8
"""In order: fewer are so by chance, and save nothing."""


def code_bits(coder: Coder, bits: Mask, hints: bytes) -> Mask:
    """One bit per unit, given a hint and the two bits before it.

    coder  writes them, or reads them
    bits   the bits; of what a decoder is given only the number counts
    hints  a level for each unit
    """
    mixer = Mixer(coder, LEVELS, [4])
    before, found = 0, bytearray()
    for bit, hint in zip(bits.tobytes(), hints, strict=True):
        bit = mixer.code(bit, hint, (before,))
        before = (before << 1 | bit) & 3
        found.append(bit)
    return np.frombuffer(found, np.bool_)


def code_mask(
    stream: Stream, mask: Mask, grid: Grid, row_hints: bytes, channel_hints: bytes
) -> None:
    """The mask of a tensor.

    stream         writes it, or reads it
    mask           of the grid's shape; a decoder fills in the zeros that it is given
    grid           the shape of the tensor as rows, channels and places
    row_hints      a level for each row
    channel_hints  a level for each channel
    """
    rows, channels = _alive(stream, mask, grid)
    rows, channels = stream.bits(rows, row_hints), stream.bits(channels, channel_hints)
    hints = np.frombuffer(channel_hints, np.uint8)[channels].tobytes()
    stream.rows(mask, grid, np.flatnonzero(rows), np.flatnonzero(channels), hints)


def in_order(elements: NDArray[Any], shape: Sequence[int]) -> bool:
    """Whether live rows, enough of them to matter, begin one after the other, not all at once.

    elements  of a tensor, flat
    shape     of the tensor
    """
    if len(shape) < 2 or shape[0] < ENOUGH_ROWS or not len(elements):
        return False
    mask = elements.reshape(shape[0], -1) != 0
    firsts = mask.argmax(1)[mask.any(1)]
    return (
        len(firsts) >= ENOUGH_ROWS
        and bool(firsts[0] < firsts[-1])
        and bool((firsts[1:] >= firsts[:-1]).all())
    )


def _alive(stream: Stream, mask: Mask, grid: Grid) -> tuple[Mask, Mask]:
    """Which rows and channels have any; to find none in a decoder's zeros would take time."""
    if stream.decoding:
        return np.zeros(grid.rows, np.bool_), np.zeros(grid.channels, np.bool_)
    # Over one axis after the other: over the first and the last at once, numpy is slow.
    return np.asarray(mask.any((1, 2))), np.asarray(np.any(mask.any(0), 1))


def code_rows(
    coder: Coder, mask: Mask, grid: Grid, rows: Places, channels: Places, hints: bytes
) -> None:
    """The elements of the live rows and channels, in place.

    coder     writes them, or reads them
    mask      of the grid's shape; a decoder fills it in
    grid      the shape of the tensor as rows, channels and places
    rows      the numbers of the live rows
    channels  the numbers of the live channels
    hints     a level for each live channel
    """
    code_row = _code_kernels if grid.places > 1 else _code_line
    mixer = _mixer(coder, len(hints), grid.places)
    above = bytes(len(hints) * grid.places)
    first = 0 if grid.ordered else -1
    for row in rows:
        line = bytearray(mask[row, channels].tobytes())
        mixer.forget(0)
        code_row(mixer, line, above, hints, grid, first)
        if coder.decoding:
            mask[row, channels] = np.frombuffer(line, np.bool_).reshape(-1, grid.places)
        above = bytes(line)
        if grid.ordered and 1 in line:
            first = line.index(1)


def _mixer(coder: Coder, channels: int, places: int) -> Mixer:
    if places == 1:
        return Mixer(coder, 2, [1, 8, LEVELS, min(channels, MAX_CELLS)])
    sizes = (places, 1, 16, LEVELS, places, channels, channels * places)
    return Mixer(coder, 2, [min(size, MAX_CELLS) for size in sizes])


def _code_line(
    mixer: Mixer, line: bytearray, above: bytes, hints: bytes, grid: Grid, first: int
) -> None:
    """A row of a plain matrix.

    In rows that are in order none begins before `first`, where the one above did; otherwise it
    is −1.
    """
    before, empty = 0, first >= 0
    for at, hint in enumerate(hints):
        if empty and at < first:
            continue
        bit = mixer.code(line[at], empty, (0, before | above[at] << 2, hint, at & _LAST))
        line[at] = bit
        empty = empty and not bit
        before = (before << 1 | bit) & 3


def _code_kernels(
    mixer: Mixer, line: bytearray, above: bytes, hints: bytes, grid: Grid, first: int
) -> None:
    """A row of kernels: all the channels of one output."""
    mixer.forget(1)
    empty = first >= 0
    places, width = grid.places, grid.width
    at = 0
    for channel, hint in enumerate(hints):
        for place in range(places):
            near = 0
            if place % width:
                near = line[at - 1]
            if place >= width:
                near |= line[at - width] << 1
                if place % width:
                    near |= line[at - width - 1] << 2
                if (place + 1) % width:
                    near |= line[at - width + 1] << 3
            spot = place & _LAST
            cells = (spot, 0, near, hint, spot, channel & _LAST, at & _LAST)
            if not empty or at >= first:
                line[at] = mixer.code(line[at], empty, cells)
                empty = empty and not line[at]
            at += 1
