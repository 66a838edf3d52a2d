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
from asterism.file.planes import chunks, pack, packed_size, unpack
from asterism.file.symbols import MAX_TEXT, TOO_LONG
from asterism.file.tensors import (
    MAX_RANK,
    Allowance,
    Tensor,
    Usage,
    decode_name,
    dtype_numbered,
)

SAMPLE = 1 << 12
BLOCK = 1 << 17
MAX_TABLE = 1 << 10


class Layout(IntEnum):
    CONSTANT = 0
    DENSE = 1
    BITMAP = 2
    ELIAS_FANO = 3


def encode(tensors: Sequence[Tensor]) -> bytes:
    pieces = [varint(len(tensors))]
    for tensor in tensors:
        pieces += _encode(tensor)
    return b"".join(pieces)


def decode(section: memoryview, allowance: Allowance) -> Iterator[tuple[Tensor, Usage]]:
    reader = _Reader(section)
    taken: set[str] = set()
    for _ in range(reader.number()):
        yield _decode(reader, allowance, taken)
    if reader.left:
        raise FormatError(f"{reader.left} bytes are left over after the last tensor")


def _encode(tensor: Tensor) -> Iterator[bytes]:
    name, words = tensor.name.encode(), tensor.words
    yield varint(len(name)) + name + bytes([DTYPES.index(tensor.dtype), len(tensor.shape)])
    yield b"".join(varint(size) for size in tensor.shape)
    if not len(words):
        return
    if (words[:SAMPLE] == words[0]).all() and (words == words[0]).all():
        yield bytes([Layout.CONSTANT]) + words[:1].tobytes()
        return
    found = _few_nonzeros(words)
    if found is not None and _is_sparse(len(words), len(found[0])):
        where, values = found
        yield bytes([Layout.ELIAS_FANO]) + varint(len(where))
        yield from _encode_positions(where, len(words))
        yield from _encode_values(values, tensor.dtype)
        return
    alive = words != 0
    if alive.all():
        yield bytes([Layout.DENSE])
        yield from _encode_values(words, tensor.dtype)
    else:
        yield bytes([Layout.BITMAP]) + np.packbits(alive).tobytes()
        yield from _encode_values(words[alive], tensor.dtype)


def _few_nonzeros(words: Words) -> tuple[NDArray[np.intp], Words] | None:
    """The non-zero elements' places and values; None where they are a third of all or more.

    Block by block: most of the work is to look at zeros, and a small mask stays in the cache.
    """
    places, values, count = [], [], 0
    for start in range(0, len(words), BLOCK):
        block = words[start : start + BLOCK]
        found = np.flatnonzero(block != 0)
        count += len(found)
        if 3 * count >= len(words):
            return None
        values.append(block[found])
        found += start
        places.append(found)
    return np.concatenate(places), np.concatenate(values)


def _is_sparse(size: int, count: int) -> bool:
    """Whether the Elias–Fano code is shorter than a bitmap."""
    return count * (_low_bits(size, count) + 2) < size


def _decode(reader: _Reader, allowance: Allowance, taken: set[str]) -> tuple[Tensor, Usage]:
    start = reader.at
    length = reader.number()
    if length > MAX_TEXT:
        raise FormatError(TOO_LONG)
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
        _decode_values(reader, words, dtype)
        return 0
    if layout == Layout.BITMAP:
        bits = np.unpackbits(np.frombuffer(reader.take((size + 7) // 8), np.uint8), count=size)
        positions = reader.at - start
        alive = bits.view(np.bool_)
        values = np.empty(int(np.count_nonzero(alive)), dtype.words)
        _decode_values(reader, values, dtype)
        words[alive] = values
        return positions
    if layout != Layout.ELIAS_FANO:
        raise FormatError(f"unknown layout {layout}: the file needs a newer asterism")
    where = _decode_positions(reader, reader.number(), size)
    positions = reader.at - start
    values = np.empty(len(where), dtype.words)
    _decode_values(reader, values, dtype)
    words[where] = values
    return positions


def _low_bits(size: int, count: int) -> int:
    return max((size // count).bit_length() - 1, 0)


def _encode_positions(where: NDArray[np.intp], size: int) -> Iterator[bytes]:
    """Low bits as they are; the upper parts as a bitmap with a one at upper(i) + i."""
    low = _low_bits(size, len(where))
    upper = np.zeros(len(where) + (size - 1 >> low) + 1, np.uint8)
    ones = where >> low
    ones += np.arange(len(where))
    upper[ones] = 1
    yield np.packbits(upper).tobytes()
    index, mask = _index_words(size), (1 << low) - 1
    yield from pack(((chunk & mask).astype(index) for chunk in chunks(where)), low)


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
    packed = reader.take(packed_size(count, low))
    for high, lower in zip(
        chunks(where), unpack(packed, count, low, _index_words(size)), strict=True
    ):
        high |= lower.astype(np.intp)
    if where[-1] >= size or (where[1:] <= where[:-1]).any():
        raise FormatError("the positions are not in ascending order")
    return where


def _index_words(size: int) -> np.dtype[Any]:
    return np.dtype("<u4") if size <= 1 << 32 else np.dtype("<u8")


def _encode_values(words: Words, dtype: DType) -> Iterator[bytes]:
    """Varint table size; the table, if any; then byte width, least value, packed values."""
    table = np.unique(words[:: max(len(words) // SAMPLE, 1)])
    index = _indices(words, table)
    if index is not None:
        yield varint(len(table)) + table.tobytes()
        yield from pack(index, (len(table) - 1).bit_length())
        return
    least = min(_turn(chunk, dtype).min() for chunk in chunks(words))
    most = max(_turn(chunk, dtype).max() for chunk in chunks(words))
    width = int(most - least).bit_length()
    yield b"\0" + bytes([width]) + least.tobytes()
    yield from pack((_turn(chunk, dtype) - least for chunk in chunks(words)), width)


def _indices(words: Words, table: Words) -> list[Words] | None:
    """Each word's place in the table, in chunks; None if the table is too large or lacks one."""
    if len(table) > MAX_TABLE or 4 * len(table) >= len(words):
        return None
    found = []
    for chunk in chunks(words):
        index = np.minimum(np.searchsorted(table, chunk), len(table) - 1)
        if (table[index] != chunk).any():
            return None
        found.append(index.astype("<u2"))
    return found


def _decode_values(reader: _Reader, out: Words, dtype: DType) -> None:
    """Fills `out`."""
    size, count = reader.number(), len(out)
    if size > MAX_TABLE:
        raise FormatError(f"a table of {size} values: at most {MAX_TABLE} are allowed")
    if size:
        table = np.frombuffer(reader.take(size * dtype.itemsize), dtype.words)
        width = (size - 1).bit_length()
        packed = reader.take(packed_size(count, width))
        for part, index in zip(
            chunks(out), unpack(packed, count, width, np.dtype("<u2")), strict=True
        ):
            if int(index.max()) >= size:
                raise FormatError(f"an index beyond its table of {size} values")
            part[:] = table[index]
        return
    width = reader.byte()
    least = np.frombuffer(reader.take(dtype.itemsize), dtype.words)
    packed = reader.take(packed_size(count, width))
    for part, turned in zip(chunks(out), unpack(packed, count, width, dtype.words), strict=True):
        part[:] = _turn_back(turned + least, dtype)


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
