"""Arrays of integers in as few bits as the largest needs, at the speed of numpy.

In chunks that stay in the cache. A chunk is laid out plane by plane, the lowest first: whole bytes
as long as eight bits are left, then single bits, eight elements to a byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from asterism.errors import FormatError
from asterism.file.dtypes import Words

CHUNK = 1 << 16


def pack(values: Words, width: int) -> bytes:
    """Values below 2^width."""
    if not width:
        return b""
    planes: list[NDArray[np.uint8]] = []
    for start in range(0, len(values), CHUNK):
        chunk = np.ascontiguousarray(values[start : start + CHUNK])
        octets = chunk.view(np.uint8).reshape(len(chunk), -1)
        planes += [octets[:, place] for place in range(width // 8)]
        for place in range(width - width % 8, width):
            planes.append(np.packbits(octets[:, place // 8] & np.uint8(1 << place % 8)))
    return b"".join(plane.tobytes() for plane in planes)


def packed_size(count: int, width: int) -> int:
    """How many bytes `pack` makes of so many values."""
    whole, rest = divmod(count, CHUNK)
    return sum(
        times * (width // 8 * size + width % 8 * ((size + 7) // 8))
        for times, size in ((whole, CHUNK), (1, rest))
    )


def unpack(data: memoryview, count: int, width: int, dtype: np.dtype[Any]) -> Words:
    """The inverse of `pack`, as little-endian words of the given type."""
    if len(data) != packed_size(count, width) or width > 8 * dtype.itemsize:
        raise FormatError(f"{count} values of {width} bits cannot take {len(data)} bytes")
    octets = np.zeros((count, dtype.itemsize), np.uint8)
    stored, at = np.frombuffer(data, np.uint8), 0
    for start in range(0, count, CHUNK):
        chunk = octets[start : start + CHUNK]
        size = len(chunk)
        for place in range(width // 8):
            chunk[:, place] = stored[at : at + size]
            at += size
        if width % 8:
            at, chunk[:, width // 8] = _join_bits(stored, at, size, width % 8)
    return octets.reshape(-1).view(dtype)


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
