"""What `spread` copies, in kernels/layers/conv_planes.h: rows and columns of channels, to planes.

Of each plane, a row of a table: its number, where its first number is in the source and where in
the plane, how many numbers its rows have, how many rows it has, and whether the next plane takes
the columns between its own.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asterism.runtime.layers.planes import Planes, Sorted
from asterism.runtime.layers.windows import Indices

Numbers = npt.NDArray[np.integer[Any]]


class Copies(NamedTuple):
    """A table, and in the source: numbers from a row to the next, from a column to the next."""

    table: Indices
    down: int
    along: int


def taken_from(source: Planes, begin: int, wanted: Sorted) -> Copies:
    """What goes to each plane.

    source  how the channels lie
    begin   where the first of them is
    wanted  which of their rows and columns, and how the planes lie
    """
    channel, y, x = wanted.planes.astype(np.int64).T
    (sh, sw), (above, beside), (height, width) = wanted.stride, wanted.padding, source.size
    # The first row of the plane that has numbers, and the one after its last; the same for columns.
    top, first = -(-np.maximum(0, above - y) // sh), -(-np.maximum(0, beside - x) // sw)
    y, x = y - above, x - beside
    bottom = np.clip(-((y - height) // sh), 0, wanted.rows)
    last = np.clip(-((x - width) // sw), 0, wanted.pitch)
    count, rows = np.maximum(last - first, 0), np.maximum(bottom - top, 0)
    begins = begin + channel * source.plane + (y + top * sh) * source.pitch + x + first * sw
    table = _table(begins, top * wanted.pitch + first, count, rows)
    if sw == 2:
        _pair(table, wanted)
    return Copies(table, sh * source.pitch, sw)


def _table(begin: Numbers, first: Numbers, count: Numbers, rows: Numbers) -> Indices:
    nothing = (rows == 0) | (count == 0)
    table = np.zeros((len(rows), 6), np.int32)
    table[:, 0] = np.arange(len(rows))
    for place, column in enumerate((begin, first, count, rows), 1):
        table[:, place] = np.where(nothing, 0, column)
    return table


def _pair(table: Indices, wanted: Sorted) -> None:
    """Marks planes whose columns lie between those of the next, in as many vectors.

    Vectors of eight, and one more of zeros, must not go beyond the end of either.
    """
    _, begin, first, count, rows, _ = table.T
    vectors = (count + 7) // 8
    fits = first + (rows - 1) * wanted.pitch + 8 * (vectors + 1) <= wanted.plane
    alike = (begin[:-1] + 1 == begin[1:]) & (rows[:-1] == rows[1:]) & (vectors[:-1] == vectors[1:])
    for i in np.flatnonzero(alike & fits[:-1] & fits[1:]):
        table[i, 5] = not (i and table[i - 1, 5])


def moved_from(source: Planes, places: Indices, pitch: int) -> Copies | None:
    """The same where each number of planes has a place; None if that is not by rows and columns.

    source  how the channels lie
    places  planes, rows, columns: which number of the channels, without zeros, or −1 for a zero
    pitch   numbers from a row of a plane to the next
    """
    live = places >= 0
    some_row, some_column = live.any(2), live.any(1)
    top, left = some_row.argmax(1), some_column.argmax(1)
    rows, count = some_row.sum(1), some_column.sum(1)
    first = places[np.arange(len(places)), top, left].astype(np.int64)
    down, along = _step(places, first, top + 1, left), _step(places, first, top, left + 1)
    y, x = np.arange(places.shape[1]) - top[:, None], np.arange(places.shape[2]) - left[:, None]
    in_row, in_column = (x >= 0) & (x < count[:, None]), (y >= 0) & (y < rows[:, None])
    grid = first[:, None, None] + y[:, :, None] * down + x[:, None] * along
    grid[~(in_column[:, :, None] & in_row[:, None])] = -1
    (_, width), (channel, place) = source.size, np.divmod(first, math.prod(source.size))
    row, column = np.divmod(place, width)
    repeated = along == 0 and count.max() > 1
    wraps = (column + (count - 1) * along >= width) & (rows > 0)
    if repeated or wraps.any() or down % width or not np.array_equal(grid, places):
        return None
    begin = source.margin + channel * source.plane + row * source.pitch + column
    table = _table(begin, top * pitch + left, count, rows)
    return Copies(table, down // width * source.pitch, max(1, along))


def _step(places: Indices, first: Numbers, row: Numbers, column: Numbers) -> int:
    """How far the numbers at a row and column of each plane are from its first; 0 if unknown."""
    _, height, width = places.shape
    inside = np.flatnonzero((row < height) & (column < width) & (first >= 0))
    there = places[inside, row[inside], column[inside]]
    known = there[there >= 0] - first[inside][there >= 0]
    return int(known[0]) if len(known) and known[0] > 0 else 0
