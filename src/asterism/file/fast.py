"""The `fast` codec, for large networks: nothing that numpy cannot do to whole arrays.

Positions are an Elias–Fano code, within half a bit of the entropy of a random mask, or a bitmap
where that is shorter; values are stored in as many bits as their range needs, or as indices into a
table of the values in use. A section is

    varint   number of tensors
    each:    varint length and UTF-8 name, byte dtype, byte rank, varint sizes, byte layout,
             and what the layout asks for
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asterism.errors import FormatError
from asterism.file.bits import read_varint, varint
from asterism.file.dtypes import DTYPES, DType, Words
from asterism.file.planes import pack, packed_size, unpack
from asterism.file.symbols import MAX_TEXT
from asterism.file.tensors import (
    MAX_RANK,
    Allowance,
    Tensor,
    Usage,
    decode_name,
    dtype_numbered,
)

SAMPLE = 1 << 12
MAX_TABLE = 1 << 10


class Layout(IntEnum):
    CONSTANT = 0
    DENSE = 1
    BITMAP = 2
    ELIAS_FANO = 3


def encode(tensors: Sequence[Tensor]) -> bytes:
    return varint(len(tensors)) + b"".join(_encode(tensor) for tensor in tensors)


def decode(section: bytes, allowance: Allowance) -> Iterator[tuple[Tensor, Usage]]:
    reader = _Reader(section)
    taken: set[str] = set()
    for _ in range(reader.number()):
        yield _decode(reader, allowance, taken)
    if reader.left:
        raise FormatError(f"{reader.left} bytes are left over after the last tensor")


def _encode(tensor: Tensor) -> bytes:
    name, words = tensor.name.encode(), tensor.words
    head = varint(len(name)) + name
    head += bytes([DTYPES.index(tensor.dtype), len(tensor.shape)])
    head += b"".join(varint(size) for size in tensor.shape)
    if not len(words):
        return head
    if (words[:SAMPLE] == words[0]).all() and (words == words[0]).all():
        return head + bytes([Layout.CONSTANT]) + words[:1].tobytes()
    alive = words != 0
    count = int(np.count_nonzero(alive))
    if count == len(words):
        return head + bytes([Layout.DENSE]) + _encode_values(words, tensor.dtype)
    low = _low_bits(len(words), count)
    if count * (low + 2) >= len(words):
        return b"".join(
            (
                head,
                bytes([Layout.BITMAP]),
                np.packbits(alive).tobytes(),
                _encode_values(words[alive], tensor.dtype),
            )
        )
    where = np.flatnonzero(alive)
    positions = _encode_positions(where, len(words), low)
    values = _encode_values(words[where], tensor.dtype)
    return b"".join((head, bytes([Layout.ELIAS_FANO]), varint(count), positions, values))


def _decode(reader: _Reader, allowance: Allowance, taken: set[str]) -> tuple[Tensor, Usage]:
    start = reader.at
    length = reader.number()
    if length > MAX_TEXT:
        raise FormatError(f"a name is longer than {MAX_TEXT} bytes")
    name = decode_name(bytes(reader.take(length)), taken)
    dtype = dtype_numbered(reader.byte())
    rank = reader.byte()
    if rank > MAX_RANK:
        raise FormatError(f"a tensor of {rank} dimensions: at most {MAX_RANK} are allowed")
    shape = tuple(reader.number() for _ in range(rank))
    size = allowance.take(name, shape, dtype)
    before = reader.at
    words = np.zeros(size, dtype.words)
    positions = _fill(words, reader, dtype) if size else 0
    usage = Usage(8.0 * (before - start), 8.0 * positions, 8.0 * (reader.at - before - positions))
    return Tensor(name, dtype, shape, words), usage


def _fill(words: Words, reader: _Reader, dtype: DType) -> int:
    """Reads the elements; returns how many bytes their positions have taken."""
    layout, size, start = reader.byte(), len(words), reader.at
    if layout == Layout.CONSTANT:
        words[:] = np.frombuffer(reader.take(dtype.itemsize), dtype.words)[0]
        return 0
    if layout == Layout.DENSE:
        words[:] = _decode_values(reader, size, dtype)
        return 0
    if layout == Layout.BITMAP:
        bits = np.unpackbits(np.frombuffer(reader.take((size + 7) // 8), np.uint8), count=size)
        positions = reader.at - start
        alive = bits.view(np.bool_)
        words[alive] = _decode_values(reader, int(np.count_nonzero(alive)), dtype)
        return positions
    if layout != Layout.ELIAS_FANO:
        raise FormatError(f"unknown layout {layout}: the file needs a newer asterism")
    where = _decode_positions(reader, reader.number(), size)
    positions = reader.at - start
    words[where] = _decode_values(reader, len(where), dtype)
    return positions


def _low_bits(size: int, count: int) -> int:
    return max((size // count).bit_length() - 1, 0)


def _encode_positions(where: NDArray[np.intp], size: int, low: int) -> bytes:
    """Low bits as they are; the upper parts as a bitmap with a one at upper(i) + i."""
    upper = np.zeros(len(where) + (size - 1 >> low) + 1, np.uint8)
    upper[(where >> low) + np.arange(len(where))] = 1
    lower = (where & (1 << low) - 1).astype(_index_words(size))
    return np.packbits(upper).tobytes() + pack(lower, low)


def _decode_positions(reader: _Reader, count: int, size: int) -> NDArray[Any]:
    if not 0 < count <= size:
        raise FormatError(f"{count} non-zero elements among {size}")
    low = _low_bits(size, count)
    length = count + (size - 1 >> low) + 1
    upper = np.unpackbits(np.frombuffer(reader.take((length + 7) // 8), np.uint8), count=length)
    where = np.flatnonzero(upper.view(np.bool_))
    if len(where) != count:
        raise FormatError(f"{len(where)} positions in the place of {count}")
    where -= np.arange(count)
    where <<= low
    lower = unpack(reader.take(packed_size(count, low)), count, low, _index_words(size))
    where |= lower.astype(np.intp)
    if where[-1] >= size or (where[1:] <= where[:-1]).any():
        raise FormatError("the positions are not in ascending order")
    return where


def _index_words(size: int) -> np.dtype[Any]:
    return np.dtype("<u4") if size <= 1 << 32 else np.dtype("<u8")


def _encode_values(words: Words, dtype: DType) -> bytes:
    """Varint table size; the table, if any; then byte width, least value, packed values."""
    table = np.unique(words[:: max(len(words) // SAMPLE, 1)])
    if len(table) <= MAX_TABLE and 4 * len(table) < len(words):
        index = np.searchsorted(table, words)
        np.minimum(index, len(table) - 1, out=index)
        if (table[index] == words).all():
            width = (len(table) - 1).bit_length()
            return varint(len(table)) + table.tobytes() + pack(index.astype("<u2"), width)
    turned = _turn(words, dtype)
    least = turned.min()
    turned = turned - least
    width = int(turned.max()).bit_length()
    return b"".join((b"\0", bytes([width]), least.tobytes(), pack(turned, width)))


def _decode_values(reader: _Reader, count: int, dtype: DType) -> Words:
    size = reader.number()
    if size:
        if size > MAX_TABLE:
            raise FormatError(f"a table of {size} values: at most {MAX_TABLE} are allowed")
        table = np.frombuffer(reader.take(size * dtype.itemsize), dtype.words)
        width = (size - 1).bit_length()
        index = unpack(reader.take(packed_size(count, width)), count, width, np.dtype("<u2"))
        if len(index) and int(index.max()) >= size:
            raise FormatError(f"an index beyond its table of {size} values")
        return table[index]
    width = reader.byte()
    least = np.frombuffer(reader.take(dtype.itemsize), dtype.words)
    turned = unpack(reader.take(packed_size(count, width)), count, width, dtype.words)
    return _turn_back(turned + least, dtype)


def _turn(words: Words, dtype: DType) -> Words:
    """Floats with the sign in the lowest bit, so that what they share is at the top."""
    if dtype.kind == "u":
        return words
    one, top = dtype.words.type(1), dtype.words.type(dtype.magnitude_bits)
    turned: Words = words << one | words >> top
    return turned


def _turn_back(words: Words, dtype: DType) -> Words:
    if dtype.kind == "u":
        return words
    one, top = dtype.words.type(1), dtype.words.type(dtype.magnitude_bits)
    turned: Words = words >> one | words << top
    return turned


class _Reader:
    """Bytes from front to back, never beyond the end."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
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
