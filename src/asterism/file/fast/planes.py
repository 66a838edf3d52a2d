"""Arrays of integers in as few bits as the largest needs, at the speed of numpy.

In chunks that stay in the cache. A chunk is laid out plane by plane, the lowest first: whole bytes
as long as eight bits are left, then single bits, eight elements to a byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asterism.errors import FormatError
from asterism.file.dtypes import Words

CHUNK = 1 << 16


def chunks(values: Words) -> Iterator[Words]:
    """The pieces that are packed one by one."""
    for start in range(0, len(values), CHUNK):
        yield values[start : start + CHUNK]


def pack(values: Iterable[Words], width: int) -> Iterator[bytes]:
    """Chunks of values below 2^width, plane by plane."""
    for chunk in values if width else ():
        octets = np.ascontiguousarray(chunk).view(np.uint8).reshape(len(chunk), -1)
        for place in range(width // 8):
            yield octets[:, place].tobytes()
        for place in range(width - width % 8, width):
            yield np.packbits(octets[:, place // 8] & np.uint8(1 << place % 8)).tobytes()


def packed_size(count: int, width: int) -> int:
    """The number of bytes that `pack` makes of this number of values."""
    whole, rest = divmod(count, CHUNK)
    return sum(
        times * (width // 8 * size + width % 8 * ((size + 7) // 8))
        for times, size in ((whole, CHUNK), (1, rest))
    )


def unpack(data: memoryview, count: int, width: int, dtype: np.dtype[Any]) -> Iterator[Words]:
    """The inverse of `pack`: chunks of little-endian words.

    data   the packed bytes, neither more nor fewer
    count  how many words there are
    width  the bits of each that were packed
    dtype  of the words
    """
    if len(data) != packed_size(count, width) or width > 8 * dtype.itemsize:
        raise FormatError(f"{count} values of {width} bits cannot take {len(data)} bytes")
    stored, at = np.frombuffer(data, np.uint8), 0
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        octets = np.zeros((size, dtype.itemsize), np.uint8)
        for place in range(width // 8):
            octets[:, place] = stored[at : at + size]
            at += size
        if width % 8:
            at, octets[:, width // 8] = _join_bits(stored, at, size, width % 8)
        yield octets.reshape(-1).view(dtype)


def _join_bits(
    stored: NDArray[np.uint8], at: int, size: int, width: int
) -> tuple[int, NDArray[np.uint8]]:
    found = np.zeros(size, np.uint8)
    step = (size + 7) // 8
    for place in range(width):
        bits = np.unpackbits(stored[at : at + step], count=size)
        found |= bits << np.uint8(place)
        at += step
    return at, found
