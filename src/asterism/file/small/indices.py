"""Which entry of its table each non-zero element is, bit by bit.

What predicts the first bits: the row so far, the classes of the elements to the left and above in
the kernel and last in this column, and the channel.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np

from asterism.errors import FormatError
from asterism.file.small.mixing import Mixer
from asterism.file.small.ranges import Coder
from asterism.file.small.streams import Indices, Places
from asterism.file.small.units import Grid

MAX_CHANNELS = 1 << 12
"""Channels beyond this number share cells."""
CLASSES = 5
"""What a neighbour tells: zero, or which quarter of the table it is in."""
_MIXED_LEVELS = 3
_NODES = 1 << _MIXED_LEVELS
_STRETCH = 1 << 12


def code_indices(coder: Coder, index: Indices, where: Places, grid: Grid, size: int) -> Indices:
    """The indices of elements into their table.

    coder  writes them, or reads them
    index  the indices; what a decoder is given is ignored
    where  the flat places of the elements
    grid   the shape of the tensor as rows, channels and places
    size   the entries of the table, more than one
    """
    levels = (size - 1).bit_length()
    stride = grid.channels * grid.places
    tables = [_NODES, *(CLASSES * _NODES,) * 3, min(grid.channels, MAX_CHANNELS) * _NODES]
    mixer = Mixer(coder, 1 << levels, tables)
    same = bytearray(stride)  # the class of the last element in this column
    line, row, found = bytearray(), -1, array("H")
    for value, flat in _pairs(index, where):
        if flat // stride != row:
            row, line = flat // stride, bytearray(stride)
            mixer.forget(0)
        at = flat % stride
        place = at % grid.places
        left = line[at - 1] if place % grid.width else 0
        up = line[at - grid.width] if place >= grid.width else 0
        channel = at // grid.places % MAX_CHANNELS
        cells = (0, left * _NODES, up * _NODES, same[at] * _NODES, channel * _NODES)
        value = _code_index(mixer, value, levels, cells)
        if value >= size:
            raise FormatError(f"an index beyond its table of {size} values")
        line[at] = same[at] = 1 + (CLASSES - 1) * value // size
        found.append(value)
    return np.frombuffer(found, np.uint16)


def _pairs(index: Indices, where: Places) -> Iterator[tuple[int, int]]:
    """Index (0 where there is none yet) and place, a stretch at a time: lists are large."""
    for start in range(0, len(where), _STRETCH):
        places = where[start : start + _STRETCH].tolist()
        known = index[start : start + _STRETCH].tolist() if len(index) else [0] * len(places)
        yield from zip(known, places, strict=True)


def _code_index(mixer: Mixer, value: int, levels: int, cells: Sequence[int]) -> int:
    """From the highest bit down; the contexts help with the first few."""
    node = 1
    for place in range(levels - 1, -1, -1):
        bit = value >> place & 1
        if node < _NODES:
            bit = mixer.code(bit, node, [cell + node for cell in cells])
        else:
            bit = mixer.code(bit, node)
        node = node << 1 | bit
    return node - (1 << levels)
