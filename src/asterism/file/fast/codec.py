"""The `fast` codec, for large networks: little that numpy cannot do to whole arrays.

Positions are an Elias–Fano code, within half a bit of the entropy of a random mask, or a bitmap
where that is shorter; values are stored in as many bits as their range needs, or as indices into a
table of the values in use. A section is

    varint   number of tensors
    each:    varint length and UTF-8 name, byte dtype, byte rank, varint sizes, byte layout,
             and what the layout asks for
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

import asterism.file.fast.elias_fano as elias_fano
from asterism.errors import FormatError
from asterism.file.bits import Reader, varint
from asterism.file.dtypes import DTYPES, DType, Words
from asterism.file.fast.planes import chunks, pack, packed_size, unpack
from asterism.file.small.compiled import find_nonzeros
from asterism.file.small.symbols import MAX_TEXT, TOO_LONG
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


def encode(tensors: Sequence[Tensor]) -> tuple[int, bytes]:
    """The version that reads it, and the section."""
    pieces = [varint(len(tensors))]
    for tensor in tensors:
        pieces += _encode(tensor)
    return 1, b"".join(pieces)


def decode(
    section: memoryview, allowance: Allowance, version: int
) -> Iterator[tuple[Tensor, Usage]]:
    """The tensors of a section, which is the same in every version."""
    reader = Reader(section)
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
    if found is not None and elias_fano.is_short(len(words), len(found[0])):
        where, values = found
        yield bytes([Layout.ELIAS_FANO]) + varint(len(where))
        yield from elias_fano.encode(where, len(words))
        yield from _encode_values(values, tensor.dtype)
        return
    alive = words != 0
    if alive.all():
        yield bytes([Layout.DENSE])
        yield from _encode_values(words, tensor.dtype)
    else:
        yield bytes([Layout.BITMAP]) + np.packbits(alive).tobytes()
        yield from _encode_values(words[alive], tensor.dtype)


def _few_nonzeros(words: Words) -> tuple[Words, Words] | None:
    """The non-zero elements' places and values; None where they are a third of all or more.

    Block by block: most of the work is to look at zeros, and a small mask stays in the cache.
    """
    places, values, count = [], [], 0
    index = elias_fano.index_words(len(words)).type
    for start in range(0, len(words), BLOCK):
        block = words[start : start + BLOCK]
        found = find_nonzeros(block)
        count += len(found)
        if 3 * count >= len(words):
            return None
        values.append(block[found])
        places.append(found.astype(index) + index(start))
    return np.concatenate(places), np.concatenate(values)


def _decode(reader: Reader, allowance: Allowance, taken: set[str]) -> tuple[Tensor, Usage]:
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


def _fill(words: Words, reader: Reader, dtype: DType) -> int:
    """Reads the elements; returns how many bytes their positions have taken."""
    layout, size, start = reader.byte(), len(words), reader.at
    if layout == Layout.CONSTANT:
        words[:] = np.frombuffer(reader.take(dtype.itemsize), dtype.words)[0]
        return 0
    if layout == Layout.DENSE:
        for part, values in zip(chunks(words), _decode_values(reader, size, dtype), strict=True):
            part[:] = values
        return 0
    if layout == Layout.BITMAP:
        bitmap = reader.take((size + 7) // 8)
        positions = reader.at - start
        count = sum(len(piece) for piece in elias_fano.ones(bitmap, size))
        _spread(words, elias_fano.ones(bitmap, size), _decode_values(reader, count, dtype))
        return positions
    if layout != Layout.ELIAS_FANO:
        raise FormatError(f"unknown layout {layout}: the file needs a newer asterism")
    count = reader.number()
    places = elias_fano.decode(reader, count, size)
    positions = reader.at - start
    _spread(words, places, _decode_values(reader, count, dtype))
    return positions


def _spread(words: Words, places: Iterable[NDArray[np.intp]], values: Iterator[Words]) -> None:
    """Each value to its place; both come in pieces, to be small, but not in the same ones."""
    waiting = words[:0]
    for where in places:
        while len(waiting) < len(where):
            waiting = np.concatenate([waiting, next(values)])
        words[where] = waiting[: len(where)]
        waiting = waiting[len(where) :]
    if len(waiting) or next(values, None) is not None:
        raise FormatError("there are more values than places")


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


def _decode_values(reader: Reader, count: int, dtype: DType) -> Iterator[Words]:
    """Chunks of values; nothing is taken from the reader before the first."""
    size = reader.number()
    if size > MAX_TABLE:
        raise FormatError(f"a table of {size} values: at most {MAX_TABLE} are allowed")
    if size:
        table = np.frombuffer(reader.take(size * dtype.itemsize), dtype.words)
        width = (size - 1).bit_length()
        packed = reader.take(packed_size(count, width))
        for index in unpack(packed, count, width, np.dtype("<u2")):
            if int(index.max()) >= size:
                raise FormatError(f"an index beyond its table of {size} values")
            yield table[index]
        return
    width = reader.byte()
    least = np.frombuffer(reader.take(dtype.itemsize), dtype.words)
    packed = reader.take(packed_size(count, width))
    for turned in unpack(packed, count, width, dtype.words):
        yield _turn_back(turned + least, dtype)


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
