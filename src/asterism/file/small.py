"""The `small` codec: every bit counts.

One description serves both directions: an encoder is told each item, a decoder ignores what it
is told and returns the item. A section is

    varint   length of the coded part
    bytes    coded part: names, dtypes, shapes, positions, tables, indices
    bytes    raw part: the low bits of each tensor's values, packed, tensor by tensor
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import pairwise

import numpy as np

from asterism.errors import FormatError
from asterism.file.bits import pack_bits, read_varint, unpack_bits, varint
from asterism.file.dtypes import DTYPES, DType, Words
from asterism.file.mixing import Mixer
from asterism.file.positions import code_bits, code_mask
from asterism.file.ranges import Coder, Decoder, Encoder
from asterism.file.symbols import Numbers, Text
from asterism.file.tensors import MAX_RANK, Allowance, Tensor, Usage, decode_name, dtype_numbered
from asterism.file.units import Grid, Units
from asterism.file.values import Split, code_indices, code_split, join, split

RECENT_SIZES = 4


class Slot(IntEnum):
    """Kinds of numbers, each with its own statistics."""

    COUNT = 0
    DTYPE = 1
    RANK = 2
    SIZE = 3
    CONSTANT_SHIFT = 4
    CONSTANT = 5
    SHIFT = 6
    LOW = 7
    TABLE = 8
    FIRST = 9
    GAP = 10


class Flag(IntEnum):
    """Kinds of yes and no."""

    CONSTANT = 0
    DENSE = 1
    NEGATIVE = 2
    RECENT = 3  # and the places after it: is a size the first, second … of the recent ones?


def encode(tensors: Sequence[Tensor]) -> bytes:
    coder, raw = Encoder(), bytearray()
    description = _Description(coder)
    description.numbers.code(len(tensors), Slot.COUNT)
    for tensor in tensors:
        raw += description.encode(tensor)
    coded = coder.finish()
    return varint(len(coded)) + coded + raw


def decode(section: bytes, allowance: Allowance) -> Iterator[tuple[Tensor, Usage]]:
    length, at = read_varint(section, 0)
    if length > len(section) - at:
        raise FormatError("the coded part is longer than its section")
    coder = Decoder(section[at : at + length])
    raw = section[at + length :]
    description = _Description(coder)
    taken: set[str] = set()
    for _ in range(description.numbers.code(0, Slot.COUNT)):
        marks = [coder.bits]
        tensor, used = description.decode(raw, allowance, taken, marks)
        raw = raw[used:]
        marks += [coder.bits] * (4 - len(marks))
        header, positions, values = (end - start for start, end in pairwise(marks))
        yield tensor, Usage(header, positions, values + 8 * used)
    coder.finish()
    if raw:
        raise FormatError(f"{len(raw)} bytes are left over after the values")


class _Description:
    """What both sides know when they come to a tensor."""

    def __init__(self, coder: Coder) -> None:
        self.coder = coder
        self.numbers = Numbers(coder, len(Slot))
        self.text = Text.primed(coder)
        self.flags = Mixer(coder, Flag.RECENT + MAX_RANK * RECENT_SIZES)
        self.units = Units()
        self.sizes: list[int] = []

    def encode(self, tensor: Tensor) -> bytes:
        """Describes a tensor to the coder; returns the raw bytes that go with it."""
        self.text.code(tensor.name.encode())
        self.numbers.code(DTYPES.index(tensor.dtype), Slot.DTYPE)
        self._shape(tensor.shape)
        words = tensor.words
        if not len(words):
            return b""
        if self._flag(Flag.CONSTANT, bool((words == words[0]).all())):
            self._constant(words[:1], tensor.dtype)
            return b""
        where = np.flatnonzero(words)
        grid, where = self._positions(where, tensor.shape, len(words))
        parts = split(words[where], tensor.dtype)
        code_split(self.coder, self.numbers, _SPLIT_SLOTS, parts, tensor.dtype)
        code_indices(self.coder, parts.index, where, grid, len(parts.table))
        return pack_bits(parts.rest, parts.low)

    def decode(
        self, raw: bytes, allowance: Allowance, taken: set[str], marks: list[float]
    ) -> tuple[Tensor, int]:
        """The next tensor, and how many raw bytes it has used; marks the ends of its parts."""
        name = decode_name(self.text.code(b""), taken)
        dtype = dtype_numbered(self.numbers.code(0, Slot.DTYPE))
        shape = self._shape(())
        size = allowance.take(name, shape, dtype)
        self._mark(marks)
        if not size:
            return Tensor(name, dtype, shape, np.zeros(0, dtype.words)), 0
        if self._flag(Flag.CONSTANT, False):
            value = self._constant(np.zeros(1, dtype.words), dtype)
            return Tensor(name, dtype, shape, np.full(size, value[0], dtype.words)), 0
        grid, where = self._positions(np.zeros(0, np.intp), shape, size)
        self._mark(marks)
        nothing = Split(0, 0, [], np.zeros(0), np.zeros(0, np.uint64))
        parts = code_split(self.coder, self.numbers, _SPLIT_SLOTS, nothing, dtype)
        rest, used = unpack_bits(raw, len(where), parts.low)
        index = code_indices(self.coder, parts.index, where, grid, len(parts.table))
        words = np.zeros(size, dtype.words)
        parts = Split(parts.shift, parts.low, parts.table, index, rest)
        words[where] = join(parts, dtype)
        return Tensor(name, dtype, shape, words), used

    def _mark(self, marks: list[float]) -> None:
        if isinstance(self.coder, Decoder):
            marks.append(self.coder.bits)

    def _flag(self, flag: int, value: bool) -> bool:
        return bool(self.flags.code(int(value), flag))

    def _shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        rank = self.numbers.code(len(shape), Slot.RANK)
        if rank > MAX_RANK:
            raise FormatError(f"a tensor of {rank} dimensions: at most {MAX_RANK} are allowed")
        given = shape if len(shape) == rank else [0] * rank
        return tuple(self._size(size, axis) for axis, size in enumerate(given))

    def _size(self, size: int, axis: int) -> int:
        """One of the sizes last used, or a new one."""
        for place, known in enumerate(self.sizes):
            if self._flag(Flag.RECENT + axis * RECENT_SIZES + place, size == known):
                size = known
                break
        else:
            size = self.numbers.code(size, Slot.SIZE)
        self.sizes = [size, *(known for known in self.sizes if known != size)][:RECENT_SIZES]
        return size

    def _constant(self, word: Words, dtype: DType) -> Words:
        sign, magnitude = (int(part[0]) for part in dtype.split(word))
        shift = (magnitude & -magnitude).bit_length() - 1 if magnitude else 0
        negative = self._flag(Flag.NEGATIVE, bool(sign)) if dtype.kind != "u" else False
        shift = self.numbers.code(shift, Slot.CONSTANT_SHIFT)
        magnitude = self.numbers.code(magnitude >> shift, Slot.CONSTANT)
        if magnitude.bit_length() + shift > dtype.magnitude_bits:
            raise FormatError(f"a constant does not fit {dtype.name}")
        return dtype.join(
            np.array([negative], dtype.words), np.array([magnitude << shift], dtype.words)
        )

    def _positions(
        self, where: np.ndarray[tuple[int], np.dtype[np.intp]], shape: Sequence[int], size: int
    ) -> tuple[Grid, np.ndarray[tuple[int], np.dtype[np.intp]]]:
        """The layout of the tensor, and the flat places of its non-zero elements."""
        dense = self._flag(Flag.DENSE, len(where) == size)
        mask = np.zeros(size, np.bool_)
        mask[where] = True
        if len(shape) < 2:
            if not dense:
                mask = code_bits(self.coder, mask, self.units.vector_hints(size))
                self.units.remember_vector(mask.view(np.uint8))
            grid = Grid(1, 1, size, size)
        else:
            grid = self.units.grid(shape)
            cube = mask.reshape(grid.rows, grid.channels, grid.places)
            if not dense:
                row_hints = self.units.row_hints(grid.rows)
                channel_hints = self.units.channel_hints(grid.channels)
                code_mask(self.coder, cube, grid, row_hints, channel_hints)
                mask = cube.reshape(-1)
            counts = np.full(grid.rows, size // grid.rows) if dense else cube.sum((1, 2))
            self.units.remember_weight(counts.astype(np.uint32))
        return grid, np.arange(size) if dense else np.flatnonzero(mask)


_SPLIT_SLOTS = (Slot.SHIFT, Slot.LOW, Slot.TABLE, Slot.FIRST, Slot.GAP)
