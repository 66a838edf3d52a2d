"""What the non-zero elements are: a table of leading parts, learnt indices into it, raw rests.

An element is sign and magnitude. Trailing zeros that all magnitudes share are left away; of what
remains, the lowest `low` bits are stored as they are, and the rest, with the sign, is looked up in
a sorted table. A codebook is the case low = 0; full floats are the case of a table of the exponents
and leading bits in use. The writer takes whichever is shortest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asterism.errors import FormatError
from asterism.file.bits import STRETCH
from asterism.file.dtypes import DType, Words
from asterism.file.small.streams import Stream

MAX_TABLE = 1 << 16
_ENTRY_BITS = 4
"""What an entry costs beside the bits of its gap: their number, and the time to learn it."""


class Split(NamedTuple):
    """Elements as indices into a table, and the low bits left out of it.

    shift    trailing zeros that all magnitudes share
    low      bits of each element that are not in the table
    table    the other bits, with the sign, in ascending order
    indices  the place of each element in the table
    rest     the low bits of each element
    """

    shift: int
    low: int
    table: list[int]
    indices: NDArray[Any]
    rest: Words


def split(words: Words, dtype: DType) -> Split:
    """The cheapest split of the elements, by an estimate of its bits."""
    sign, magnitude = dtype.split(words)
    union = int(np.bitwise_or.reduce(magnitude)) if len(magnitude) else 0
    shift = (union & -union).bit_length() - 1 if union else 0
    magnitude = magnitude >> dtype.words.type(shift)
    width = dtype.magnitude_bits - shift
    symbols = _symbols(sign, magnitude, width, dtype)
    low, table = _cheapest(symbols, width)
    rest = magnitude & dtype.words.type((1 << low) - 1)
    del sign, magnitude  # a large tensor has little room for copies
    return Split(shift, low, table.tolist(), _places(table, symbols, low), rest)


def join(parts: Split, dtype: DType) -> Words:
    """The inverse of `split`."""
    words: Words = _entries(parts, dtype)[parts.indices]
    for start in range(0, len(words) if parts.low else 0, STRETCH):
        part = slice(start, start + STRETCH)
        # A negative integer's bits are all turned over, and so are these: hence no "or".
        words[part] ^= parts.rest[part] << dtype.words.type(parts.shift)
    return words


def _entries(parts: Split, dtype: DType) -> Words:
    """The table as elements whose low bits are zeros."""
    width = dtype.magnitude_bits - parts.shift - parts.low
    limit = 1 << (width + (dtype.kind != "u"))
    if parts.table and parts.table[-1] >= limit:
        raise FormatError(f"a value does not fit {dtype.name}")
    symbols = np.array(parts.table, np.uint64)
    sign = np.zeros_like(symbols)
    if dtype.kind != "u":
        half = np.uint64(1 << width)
        sign = (symbols < half).astype(np.uint64)
        symbols = np.where(sign, half - np.uint64(1) - symbols, symbols - half)
    magnitude = symbols << np.uint64(parts.low + parts.shift)
    return dtype.join(sign.astype(dtype.words), magnitude.astype(dtype.words))


def code_split(stream: Stream, slots: Sequence[int], parts: Split, dtype: DType) -> Split:
    """All of a split but its indices and its rest.

    stream  writes it, or reads it
    slots   of the shift, the low bits, the table's size, its first entry and its gaps
    parts   the split; a stream that reads takes its indices and its rest from it
    dtype   of the elements
    """
    shift_slot, low_slot, count_slot, first_slot, gap_slot = slots
    shift = stream.number(parts.shift, shift_slot)
    low = stream.number(parts.low, low_slot)
    count = stream.number(len(parts.table), count_slot)
    if shift + low > dtype.magnitude_bits or not 0 < count <= MAX_TABLE:
        raise FormatError(f"a table of {count} entries of {shift} + {low} bits less than usual")
    first = stream.number(parts.table[0] if parts.table else 0, first_slot)
    gaps = [entry - last - 1 for last, entry in pairwise(parts.table)] or [0] * (count - 1)
    gaps = stream.numbers(gaps, gap_slot)
    table = list(accumulate(gaps, lambda last, gap: last + 1 + gap, initial=first))
    return Split(shift, low, table, parts.indices, parts.rest)


def _symbols(sign: Words, high: Words, width: int, dtype: DType) -> Words:
    """Sign and leading bits as one number, in the order of the values."""
    if dtype.kind == "u":
        return high
    half, one = dtype.words.type(1 << width), dtype.words.type(1)
    return np.asarray(np.where(sign, half - one - high, half + high))


def _places(table: Words, symbols: Words, low: int) -> NDArray[np.uint16]:
    """Where in the table each symbol is; a stretch at a time, as numpy's places are large."""
    found = np.empty(len(symbols), np.uint16)
    for start in range(0, len(symbols), STRETCH):
        part = slice(start, start + STRETCH)
        found[part] = table.searchsorted(symbols[part] >> table.dtype.type(low))
    return found


def _cheapest(symbols: Words, width: int) -> tuple[int, Words]:
    """How many low bits are best left out of the table, and the table without them."""
    table, counts = np.unique(symbols, return_counts=True)
    total = int(counts.sum())
    best, best_bits = (width, table), float("inf")
    for low in range(width + 1):
        if low:
            table, counts = _without_last_bit(table, counts)
        if len(table) > MAX_TABLE:
            continue
        entropy = float(-(counts * np.log2(counts / max(total, 1))).sum())
        if total * low + entropy >= best_bits:
            break  # a bit left out saves a bit of entropy at most: this sum only grows
        gaps = np.log2((table[1:] - table[:-1]).astype(np.float64))
        bits = total * low + entropy + float(gaps.sum()) + _ENTRY_BITS * len(table)
        if bits < best_bits:
            best, best_bits = (low, table), bits
    return best


def _without_last_bit(table: Words, counts: NDArray[Any]) -> tuple[Words, NDArray[Any]]:
    """The entries shifted by a bit, those that become the same as one."""
    table = table >> table.dtype.type(1)
    new = np.ones(len(table), np.bool_)
    np.not_equal(table[1:], table[:-1], out=new[1:])
    return table[new], np.add.reduceat(counts, new.nonzero()[0])
