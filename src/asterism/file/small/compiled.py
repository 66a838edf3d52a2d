"""The stream of the small mode in C: kernels/codec, by ctypes.

The bits of a stream are those of `reference.py`, which serves where nothing is compiled.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import asterism.kernels.library as library
from asterism.errors import FormatError
from asterism.file.dtypes import Words
from asterism.file.small.ranges import ENDS_EARLY, LEFT_OVER
from asterism.file.small.streams import FLAGS, Indices, Mask, Places, Slot, Stream
from asterism.file.small.symbols import MAX_TEXT, PRIMER, TOO_LONG
from asterism.file.small.units import Grid

_NO_MEMORY, _ENDS_EARLY, _TOO_LONG = 1, 2, 3


def open_stream(data: bytes | None = None) -> Stream:
    """Reads the data, or writes; compiled where it can be."""
    found = library.load()
    if found is not None:
        return Compiled(found, data)
    from asterism.file.small.reference import Reference

    return Reference(data)


class Compiled:
    """Reads `data`, or writes where there are none."""

    def __init__(self, kernels: ctypes.CDLL, data: bytes | None = None) -> None:
        self._kernels, self._data = kernels, data
        self.decoding = data is not None
        self._stream = kernels.asterism_stream_new(
            data, len(data or b""), PRIMER, len(PRIMER), FLAGS, len(Slot)
        )
        if not self._stream:
            raise MemoryError("no memory for the statistics of a file")
        self._state = self._stream.contents

    def __del__(self) -> None:
        if getattr(self, "_stream", None):
            self._kernels.asterism_stream_free(self._stream)

    @property
    def used(self) -> float:
        return 8.0 * self._state.at - math.log2(self._state.range) if self.decoding else 0.0

    def flag(self, value: bool, flag: int) -> bool:
        found = self._kernels.asterism_code_flag(self._stream, value, flag)
        self._check()
        return bool(found)

    def number(self, value: int, slot: int) -> int:
        found = self._kernels.asterism_code_number(self._stream, value, slot)
        self._check()
        return int(found)

    def numbers(self, values: Sequence[int], slot: int) -> list[int]:
        found = (ctypes.c_uint64 * len(values))(*values)
        self._kernels.asterism_code_numbers(self._stream, found, len(found), slot)
        self._check()
        return list(found)

    def text(self, text: bytes) -> bytes:
        room = ctypes.create_string_buffer(text, MAX_TEXT + 1)
        length = self._kernels.asterism_code_text(self._stream, room, MAX_TEXT + 1)
        self._check()
        return room.raw[:length]

    def bits(self, bits: Mask, hints: bytes) -> Mask:
        assert len(bits) == len(hints)
        found = np.array(bits, np.bool_)
        self._kernels.asterism_code_bits(self._stream, _at(found), hints, len(hints))
        self._check()
        return found

    def rows(self, mask: Mask, grid: Grid, rows: Places, channels: Places, hints: bytes) -> None:
        assert mask.flags.c_contiguous
        assert mask.shape == (grid.rows, grid.channels, grid.places)
        assert len(channels) == len(hints)
        live_rows, live_channels = rows.astype(np.int64), channels.astype(np.int64)
        self._kernels.asterism_code_rows(
            *(self._stream, _at(mask), _sizes(grid), _at(live_rows), len(rows)),
            *(_at(live_channels), len(channels), hints, grid.ordered),
        )
        self._check()

    def indices(self, index: Indices, where: Places, grid: Grid, size: int) -> Indices:
        found = np.zeros(len(where), np.uint16)
        if not self.decoding:
            found[:] = index
        places = where.astype(np.int64, copy=False)
        self._kernels.asterism_code_indices(
            self._stream, _at(found), _at(places), len(places), _sizes(grid), size
        )
        self._check(f"an index beyond its table of {size} values")
        return found

    def finish(self) -> bytes:
        if self.decoding:
            if self._state.at < len(self._data or b""):
                raise FormatError(LEFT_OVER)
            return b""
        self._kernels.asterism_stream_finish(self._stream)
        self._check()
        return ctypes.string_at(self._state.out, self._state.out_size)

    def _check(self, otherwise: str = "") -> None:
        status = self._state.status
        if status == _NO_MEMORY:
            raise MemoryError("no memory for the statistics of a file")
        if status:
            raise FormatError({_ENDS_EARLY: ENDS_EARLY, _TOO_LONG: TOO_LONG}.get(status, otherwise))


def find_nonzeros(words: Words) -> NDArray[np.integer[Any]]:
    """The places of the words that are not zero, of a block of them."""
    found = library.load()
    if found is None:
        return np.flatnonzero(words != 0)
    assert words.flags.c_contiguous
    places = np.empty(len(words), np.uint32)
    count = found.asterism_find_nonzeros(_at(words), len(words), words.itemsize, _at(places))
    return places[:count]


def _at(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _sizes(grid: Grid) -> Any:
    return (ctypes.c_int64 * 4)(grid.rows, grid.channels, grid.places, grid.width)
