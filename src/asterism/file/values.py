"""What the non-zero elements are: a table of leading parts, learnt indices into it, raw rests.

An element is sign and magnitude. Trailing zeros that all magnitudes share are left away; of what
remains, the lowest `low` bits are stored as they are, and the rest, with the sign, is looked up in
a sorted table. A codebook is the case low = 0; full floats are the case of a table of the exponents
and leading bits in use. The writer takes whichever is shortest.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asterism.errors import FormatError
from asterism.file.dtypes import DType, Words
from asterism.file.mixing import Mixer
from asterism.file.ranges import Coder
from asterism.file.symbols import Numbers
from asterism.file.units import Grid

MAX_TABLE = 1 << 16
MAX_CHANNELS = 1 << 12
"""Beyond so many channels they share cells."""
_STRETCH = 1 << 12
_ENTRY_BITS = 4
"""What an entry costs beside the bits of its gap: their number, and the time to learn it."""
CLASSES = 5
"""What a neighbour tells: zero, or which quarter of the table it is in."""
_MIXED_LEVELS = 3
_NODES = 1 << _MIXED_LEVELS

UInts = NDArray[np.uint64]


@dataclass(frozen=True)
class Split:
    """Elements as indices into a table, and the low bits left out of it."""

    shift: int
    low: int
    table: list[int]
    index: NDArray[Any]
    rest: UInts


def split(words: Words, dtype: DType) -> Split:
    """The cheapest split of the elements, by an estimate of its bits."""
    sign, magnitude = (part.astype(np.uint64) for part in dtype.split(words))
    union = int(np.bitwise_or.reduce(magnitude)) if len(magnitude) else 0
    shift = (union & -union).bit_length() - 1 if union else 0
    magnitude >>= np.uint64(shift)
    width = dtype.magnitude_bits - shift
    low = _cheapest(_symbols(sign, magnitude, width, dtype), width)
    rest = magnitude & np.uint64((1 << low) - 1)
    symbols = _symbols(sign, magnitude >> np.uint64(low), width - low, dtype)
    table, index = np.unique(symbols, return_inverse=True)
    return Split(shift, low, [int(entry) for entry in table], index.reshape(-1), rest)


def join(parts: Split, dtype: DType) -> Words:
    """The inverse of `split`."""
    width = dtype.magnitude_bits - parts.shift - parts.low
    limit = 1 << (width + (dtype.kind != "u"))
    if parts.table and parts.table[-1] >= limit:
        raise FormatError(f"a value does not fit {dtype.name}")
    symbols = np.array(parts.table, np.uint64)[parts.index]
    sign = np.zeros_like(symbols)
    if dtype.kind != "u":
        half = np.uint64(1 << width)
        sign = (symbols < half).astype(np.uint64)
        symbols = np.where(sign, half - np.uint64(1) - symbols, symbols - half)
    magnitude = (symbols << np.uint64(parts.low) | parts.rest) << np.uint64(parts.shift)
    return dtype.join(sign.astype(dtype.words), magnitude.astype(dtype.words))


def code_split(
    coder: Coder, numbers: Numbers, slots: Sequence[int], parts: Split, dtype: DType
) -> Split:
    """All but the indices and the rest."""
    shift_slot, low_slot, count_slot, first_slot, gap_slot = slots
    shift = numbers.code(parts.shift, shift_slot)
    low = numbers.code(parts.low, low_slot)
    count = numbers.code(len(parts.table), count_slot)
    if shift + low > dtype.magnitude_bits or not 0 < count <= MAX_TABLE:
        raise FormatError(f"a table of {count} entries of {shift} + {low} bits less than usual")
    given = parts.table or [0] * count
    table = [numbers.code(given[0], first_slot)]
    for last, entry in pairwise(given):
        table.append(table[-1] + 1 + numbers.code(max(entry - last - 1, 0), gap_slot))
    return Split(shift, low, table, parts.index, parts.rest)


def code_indices(
    coder: Coder, index: NDArray[Any], where: NDArray[np.intp], grid: Grid, size: int
) -> NDArray[Any]:
    """The indices into a table of `size`, of the elements at the flat places `where`."""
    if size == 1:
        return np.zeros(len(where), np.uint16)
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


def _pairs(index: NDArray[Any], where: NDArray[np.intp]) -> Iterator[tuple[int, int]]:
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


def _symbols(sign: UInts, high: UInts, width: int, dtype: DType) -> UInts:
    """Sign and leading bits as one number, in the order of the values."""
    if dtype.kind == "u":
        return high
    half = np.uint64(1 << width)
    return np.where(sign, half - np.uint64(1) - high, half + high)


def _cheapest(symbols: UInts, width: int) -> int:
    """How many low bits are best left out of the table."""
    table, counts = np.unique(symbols, return_counts=True)
    total = int(counts.sum())
    best, best_bits = width, float("inf")
    for low in range(width + 1):
        if low:
            table, place = np.unique(table >> np.uint64(1), return_inverse=True)
            counts = np.bincount(place.reshape(-1), weights=counts)
        if len(table) > MAX_TABLE:
            continue
        entropy = float(-(counts * np.log2(counts / max(total, 1))).sum())
        gaps = np.log2((table[1:] - table[:-1]).astype(np.float64))
        bits = total * low + entropy + float(gaps.sum()) + _ENTRY_BITS * len(table)
        if bits < best_bits:
            best, best_bits = low, bits
    return best
