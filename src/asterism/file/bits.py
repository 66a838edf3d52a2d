"""Integers as bytes: varints, and arrays of any width in bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from asterism.errors import FormatError

_MAX_VARINT = 10
STRETCH = 1 << 13
"""Values that are unpacked at once: a byte per bit is much. A multiple of 8, to end at a byte."""


def varint(value: int) -> bytes:
    """Seven bits to a byte, the lowest first; the top bit says that more follow.

    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends."""
    value = 0
    for place in range(_MAX_VARINT):
        if at + place >= len(data):
            raise FormatError("a number is cut off")
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise FormatError(f"a number of more than {_MAX_VARINT} bytes")


def pack_bits(values: NDArray[np.unsignedinteger[Any]], width: int) -> bytes:
    """Each value's lowest `width` bits, highest first, one after the other; zeros to a byte."""
    places = np.arange(width - 1, -1, -1, dtype=np.uint64)
    pieces = []
    for start in range(0, len(values) if width else 0, STRETCH):
        stretch = values[start : start + STRETCH, None]
        pieces.append(np.packbits((stretch >> places & np.uint64(1)).astype(np.uint8)).tobytes())
    return b"".join(pieces)


def unpack_bits(
    data: bytes | memoryview, count: int, width: int, dtype: DTypeLike = np.uint64
) -> tuple[NDArray[Any], int]:
    """The inverse of `pack_bits`, and how many bytes it has used.

    data   the packed values, and what follows them
    count  how many values there are
    width  the bits of each
    dtype  of the values that are returned
    """
    used = (count * width + 7) // 8
    if used > len(data):
        raise FormatError(f"{count} values of {width} bits need {used} bytes: {len(data)} are left")
    values = np.zeros(count, dtype)
    packed = np.frombuffer(data, np.uint8, used)
    for start in range(0, count if width else 0, STRETCH):
        part = values[start : start + STRETCH]
        first, size = start * width // 8, len(part) * width
        bits = np.unpackbits(packed[first : first + (size + 7) // 8])
        if bits[size:].any():
            raise FormatError("the last byte of the values is not filled up with zeros")
        for column in bits[:size].reshape(len(part), width).T:
            part <<= values.dtype.type(1)
            part |= column
    return values, used


class Reader:
    """Bytes from front to back, never beyond the end."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self.at

    def take(self, count: int) -> memoryview:
        if count > self.left:
            raise FormatError(f"{count} bytes are needed where {self.left} are left")
        self.at += count
        return self._data[self.at - count : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        value, self.at = read_varint(self._data, self.at)
        return value
