"""The `small` codec: every bit counts.

One description serves both directions: an encoder is told each item, a decoder ignores what it
is told and returns the item. A section is

    varint   length of the coded part
    bytes    coded part: names, dtypes, shapes, positions, tables, indices
    bytes    raw part: the low bits of each tensor's values, packed, tensor by tensor
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from asterism.errors import FormatError
from asterism.file.bits import pack_bits, read_varint, unpack_bits, varint
from asterism.file.dtypes import DTYPES, DType, Words
from asterism.file.small.compiled import open_stream
from asterism.file.small.positions import code_mask, in_order
from asterism.file.small.streams import RECENT_SIZES, Flag, Indices, Mask, Places, Slot, Stream
from asterism.file.small.units import Grid, Units
from asterism.file.small.values import Split, code_split, join, split
from asterism.file.tensors import MAX_RANK, Allowance, Tensor, Usage, decode_name, dtype_numbered


def encode(tensors: Sequence[Tensor]) -> tuple[int, bytes]:
    """The version that reads it, and the section."""
    stream, raw = open_stream(), bytearray()
    version = 2 if any(in_order(tensor.words, tensor.shape) for tensor in tensors) else 1
    description = _Description(stream, version)
    stream.number(len(tensors), Slot.COUNT)
    for tensor in tensors:
        raw += description.encode(tensor)
    coded = stream.finish()
    return version, varint(len(coded)) + coded + raw


def decode(
    section: memoryview, allowance: Allowance, version: int
) -> Iterator[tuple[Tensor, Usage]]:
    """The tensors of a section of this version."""
    length, at = read_varint(section, 0)
    if length > len(section) - at:
        raise FormatError("the coded part is longer than its section")
    stream = open_stream(bytes(section[at : at + length]))
    raw = section[at + length :]
    description = _Description(stream, version)
    taken: set[str] = set()
    for _ in range(stream.number(0, Slot.COUNT)):
        marks = [stream.used]
        tensor, used = description.decode(raw, allowance, taken, marks)
        raw = raw[used:]
        marks += [stream.used] * (4 - len(marks))
        header, positions, values = (end - start for start, end in pairwise(marks))
        yield tensor, Usage(header, positions, values + 8 * used)
    stream.finish()
    if raw:
        raise FormatError(f"{len(raw)} bytes are left over after the values")


class _Description:
    """What both sides know when they come to a tensor."""

    def __init__(self, stream: Stream, version: int) -> None:
        self.stream, self.version = stream, version
        self.units = Units()
        self.sizes: list[int] = []

    def encode(self, tensor: Tensor) -> bytes:
        """Describes a tensor to the coder; returns the raw bytes that go with it."""
        self.stream.text(tensor.name.encode())
        self.stream.number(DTYPES.index(tensor.dtype), Slot.DTYPE)
        self._shape(tensor.shape)
        words = tensor.words
        if not len(words):
            return b""
        if self.stream.flag(bool((words == words[0]).all()), Flag.CONSTANT):
            self._constant(words[:1], tensor.dtype)
            return b""
        where = np.flatnonzero(words != 0)  # of truth values: five times as fast
        grid, where = self._positions(where, tensor.shape, len(words))
        parts = split(words[where], tensor.dtype)
        code_split(self.stream, _SPLIT_SLOTS, parts, tensor.dtype)
        self._indices(parts, where, grid)
        return pack_bits(parts.rest, parts.low)

    def decode(
        self, raw: memoryview, allowance: Allowance, taken: set[str], marks: list[float]
    ) -> tuple[Tensor, int]:
        """The next tensor, and how many raw bytes it has used.

        raw        the bytes that follow the coded part
        allowance  what may be decoded in all
        taken      the names so far, to which this one is added
        marks      bits used so far; the ends of the tensor's parts are added
        """
        name = decode_name(self.stream.text(b""), taken)
        dtype = dtype_numbered(self.stream.number(0, Slot.DTYPE))
        shape = self._shape(())
        size = allowance.take(name, shape, dtype)
        marks.append(self.stream.used)
        if not size:
            return Tensor(name, dtype, shape, np.zeros(0, dtype.words)), 0
        if self.stream.flag(False, Flag.CONSTANT):
            value = self._constant(np.zeros(1, dtype.words), dtype)
            return Tensor(name, dtype, shape, np.full(size, value[0], dtype.words)), 0
        grid, where = self._positions(np.zeros(0, np.intp), shape, size)
        marks.append(self.stream.used)
        nothing = Split(0, 0, [], np.zeros(0), np.zeros(0, dtype.words))
        parts = code_split(self.stream, _SPLIT_SLOTS, nothing, dtype)
        rest, used = unpack_bits(raw, len(where), parts.low, dtype.words)
        index = self._indices(parts, where, grid)
        parts = Split(parts.shift, parts.low, parts.table, index, rest)
        words = join(parts, dtype)
        if len(words) < size:
            words, found = np.zeros(size, dtype.words), words
            words[where] = found
        return Tensor(name, dtype, shape, words), used

    def _indices(self, parts: Split, where: Places, grid: Grid) -> Indices:
        if len(parts.table) == 1:
            return np.zeros(len(where), np.uint16)
        return self.stream.indices(parts.indices, where, grid, len(parts.table))

    def _shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        rank = self.stream.number(len(shape), Slot.RANK)
        if rank > MAX_RANK:
            raise FormatError(f"a tensor of {rank} dimensions: at most {MAX_RANK} are allowed")
        given = shape if len(shape) == rank else [0] * rank
        return tuple(self._size(size, axis) for axis, size in enumerate(given))

    def _size(self, size: int, axis: int) -> int:
        """One of the sizes last used, or a new one."""
        for place, known in enumerate(self.sizes):
            if self.stream.flag(size == known, Flag.RECENT + axis * RECENT_SIZES + place):
                size = known
                break
        else:
            size = self.stream.number(size, Slot.SIZE)
        self.sizes = [size, *(known for known in self.sizes if known != size)][:RECENT_SIZES]
        return size

    def _constant(self, word: Words, dtype: DType) -> Words:
        sign, magnitude = (int(part[0]) for part in dtype.split(word))
        shift = (magnitude & -magnitude).bit_length() - 1 if magnitude else 0
        negative = self.stream.flag(bool(sign), Flag.NEGATIVE) if dtype.kind != "u" else False
        shift = self.stream.number(shift, Slot.CONSTANT_SHIFT)
        magnitude = self.stream.number(magnitude >> shift, Slot.CONSTANT)
        if magnitude.bit_length() + shift > dtype.magnitude_bits:
            raise FormatError(f"a constant does not fit {dtype.name}")
        return dtype.join(
            np.array([negative], dtype.words), np.array([magnitude << shift], dtype.words)
        )

    def _positions(self, where: Places, shape: Sequence[int], size: int) -> tuple[Grid, Places]:
        """The layout of the tensor, and the flat places of its non-zero elements."""
        dense = self.stream.flag(len(where) == size, Flag.DENSE)
        mask = np.zeros(size, np.bool_)
        mask[where] = True
        if len(shape) < 2:
            if not dense:
                mask = self.stream.bits(mask, self.units.vector_hints(size))
                self.units.remember_vector(mask.view(np.uint8))
            grid = Grid(1, 1, size, size)
        else:
            grid = self.units.grid(shape)
            cube = mask.reshape(grid.rows, grid.channels, grid.places)
            if not dense:
                row_hints = self.units.row_hints(grid.rows)
                channel_hints = self.units.channel_hints(grid.channels)
                grid = grid._replace(ordered=self._ordered(mask, shape))
                code_mask(self.stream, cube, grid, row_hints, channel_hints)
                mask = cube.reshape(-1)
        where = np.arange(size) if dense else np.flatnonzero(mask)
        if len(shape) >= 2:
            counts = np.bincount(where // (size // grid.rows), minlength=grid.rows)
            self.units.remember_weight(counts.astype(np.uint32))
        return grid, where

    def _ordered(self, mask: Mask, shape: Sequence[int]) -> bool:
        """Whether rows are in order, which version 1 does not know of."""
        if self.version == 1:
            return False
        found = not self.stream.decoding and in_order(mask, shape)
        return self.stream.flag(found, Flag.ORDERED)


_SPLIT_SLOTS = (Slot.SHIFT, Slot.LOW, Slot.TABLE, Slot.FIRST, Slot.GAP)
