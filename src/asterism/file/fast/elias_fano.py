"""Positions as an Elias–Fano code: within half a bit of the entropy of a random mask.

All in pieces that stay in the cache: there may be many.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asterism.errors import FormatError
from asterism.file.bits import Reader
from asterism.file.dtypes import Words
from asterism.file.fast.planes import chunks, pack, packed_size, unpack

BLOCK = 1 << 17

Places = NDArray[np.intp]


def is_short(size: int, count: int) -> bool:
    """Whether the code is shorter than a bitmap."""
    return count * (_low_bits(size, count) + 2) < size


def encode(where: Words, size: int) -> Iterator[bytes]:
    """Low bits as they are; the upper parts as a bitmap with a one at upper(i) + i."""
    low, at = _low_bits(size, len(where)), 0
    upper = np.zeros(len(where) + (size - 1 >> low) + 1, np.uint8)
    for chunk in chunks(where):
        upper[(chunk >> low) + np.arange(at, at + len(chunk))] = 1
        at += len(chunk)
    yield np.packbits(upper).tobytes()
    mask = where.dtype.type((1 << low) - 1)
    yield from pack((chunk & mask for chunk in chunks(where)), low)


def decode(reader: Reader, count: int, size: int) -> Iterator[Places]:
    """The positions in ascending pieces; their bytes are taken at once.

    reader  where the bytes are next
    count   how many positions there are
    size    the elements among which they are
    """
    if not 0 < count <= size:
        raise FormatError(f"{count} non-zero elements among {size}")
    low = _low_bits(size, count)
    length = count + (size - 1 >> low) + 1
    upper = np.concatenate(
        [found.astype(index_words(size)) for found in ones(reader.take((length + 7) // 8), length)]
    )
    if len(upper) != count:
        raise FormatError(f"{len(upper)} positions in the place of {count}")
    packed = reader.take(packed_size(count, low))
    return _join(upper, unpack(packed, count, low, index_words(size)), low, size)


def _join(upper: Words, lower: Iterator[Words], low: int, size: int) -> Iterator[Places]:
    at, last = 0, -1
    for high, rest in zip(chunks(upper), lower, strict=True):
        where = high.astype(np.intp)
        where -= np.arange(at, at + len(where))
        where <<= low
        where |= rest.astype(np.intp)
        if where[0] <= last or where[-1] >= size or (where[1:] <= where[:-1]).any():
            raise FormatError("the positions are not in ascending order")
        yield where
        at, last = at + len(where), int(where[-1])


def ones(bitmap: memoryview, length: int) -> Iterator[Places]:
    """The places of the ones among the first `length` bits, block by block."""
    for start in range(0, length, BLOCK):
        block = np.frombuffer(bitmap[start // 8 : (start + BLOCK) // 8], np.uint8)
        bits = np.unpackbits(block, count=min(BLOCK, length - start))
        found = np.flatnonzero(bits.view(np.bool_))
        found += start
        yield found


def index_words(size: int) -> np.dtype[Any]:
    return np.dtype("<u4") if size <= 1 << 32 else np.dtype("<u8")


def _low_bits(size: int, count: int) -> int:
    return max((size // count).bit_length() - 1, 0)
