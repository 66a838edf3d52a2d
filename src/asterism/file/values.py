"""What the non-zero elements are: a table of leading parts, learnt indices into it, raw rests.

An element is sign and magnitude. Trailing zeros that all magnitudes share are left away; of what
remains, the lowest `low` bits are stored as they are, and the rest, with the sign, is looked up in
a sorted table. A codebook is the case low = 0; full floats are the case of a table of the exponents
and leading bits in use. The writer takes whichever is shortest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asterism.errors import FormatError
from asterism.file.bits import STRETCH
from asterism.file.dtypes import DType, Words
from asterism.file.streams import Stream

MAX_TABLE = 1 << 16
_ENTRY_BITS = 4
"""What an entry costs beside the bits of its gap: their number, and the time to learn it."""

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
    words, table = np.empty(len(parts.index), dtype.words), np.array(parts.table, np.uint64)
    for start in range(0, len(words), STRETCH):
        part = slice(start, start + STRETCH)
        words[part] = _join(table[parts.index[part]], parts.rest[part], width, parts, dtype)
    return words


def _join(symbols: UInts, rest: UInts, width: int, parts: Split, dtype: DType) -> Words:
    sign = np.zeros_like(symbols)
    if dtype.kind != "u":
        half = np.uint64(1 << width)
        sign = (symbols < half).astype(np.uint64)
        symbols = np.where(sign, half - np.uint64(1) - symbols, symbols - half)
    magnitude = (symbols << np.uint64(parts.low) | rest) << np.uint64(parts.shift)
    return dtype.join(sign.astype(dtype.words), magnitude.astype(dtype.words))


def code_split(stream: Stream, slots: Sequence[int], parts: Split, dtype: DType) -> Split:
    """All but the indices and the rest."""
    shift_slot, low_slot, count_slot, first_slot, gap_slot = slots
    shift = stream.number(parts.shift, shift_slot)
    low = stream.number(parts.low, low_slot)
    count = stream.number(len(parts.table), count_slot)
    if shift + low > dtype.magnitude_bits or not 0 < count <= MAX_TABLE:
        raise FormatError(f"a table of {count} entries of {shift} + {low} bits less than usual")
    given = parts.table or [0] * count
    table = [stream.number(given[0], first_slot)]
    for last, entry in pairwise(given):
        table.append(table[-1] + 1 + stream.number(max(entry - last - 1, 0), gap_slot))
    return Split(shift, low, table, parts.index, parts.rest)


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
