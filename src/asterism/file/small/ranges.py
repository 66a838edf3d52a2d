"""A binary range coder: bits with given probabilities ↔ bytes, in integers only.

Both classes have the same `code`, so that whoever describes data to a coder writes the
description once: the encoder takes the bit and returns it, the decoder ignores what it is given
and returns what the file says.
"""

from __future__ import annotations

import math

from asterism.errors import FormatError

PROBABILITY_BITS = 16
"""P(bit = 1) is given in units of 2⁻¹⁶."""

ENDS_EARLY = "the coded data end too early"
LEFT_OVER = "bytes are left over after the coded data"

_TOP = 1 << 24
_FULL = 0xFFFF_FFFF
_TAIL = 4
"""The decoder looks this many bytes ahead; the encoder drops as many zeros at the end."""


class Encoder:
    """Collects bits; `finish` gives the bytes."""

    decoding = False

    def __init__(self) -> None:
        self._low = 0
        self._range = _FULL
        self._bytes = bytearray()

    def code(self, p: int, bit: int) -> int:
        bound = (self._range >> PROBABILITY_BITS) * p
        if bit:
            self._range = bound
        else:
            self._low += bound
            self._range -= bound
        while self._range < _TOP:
            self._shift()
            self._range <<= 8
        return bit

    def _shift(self) -> None:
        if self._low > _FULL:
            self._carry()
        self._bytes.append(self._low >> 24)
        self._low = (self._low << 8) & _FULL

    def _carry(self) -> None:
        self._low &= _FULL
        at = len(self._bytes) - 1
        while self._bytes[at] == 0xFF:
            self._bytes[at] = 0
            at -= 1
        self._bytes[at] += 1

    def finish(self) -> bytes:
        """The shortest bytes that decode to the bits so far."""
        for zeros in (24, 16, 8, 0):  # a number in [low, low + range) with the most zeros
            rounded = (self._low + (1 << zeros) - 1) >> zeros << zeros
            if rounded < self._low + self._range:
                self._low = rounded
                break
        for _ in range(_TAIL):
            self._shift()
        for _ in range(_TAIL):
            if self._bytes and not self._bytes[-1]:
                del self._bytes[-1]
        return bytes(self._bytes)


class Decoder:
    """Gives the bits back; an error where the bytes run out, or are left over."""

    decoding = True

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._range = _FULL
        self._code = 0
        for _ in range(_TAIL):
            self._next()

    def code(self, p: int, bit: int = 0) -> int:
        bound = (self._range >> PROBABILITY_BITS) * p
        if self._code < bound:
            self._range = bound
            bit = 1
        else:
            self._code -= bound
            self._range -= bound
            bit = 0
        while self._range < _TOP:
            self._next()
            self._range <<= 8
        return bit

    def _next(self) -> None:
        at = self._at
        if at >= len(self._data) + _TAIL:
            raise FormatError(ENDS_EARLY)
        self._code = (self._code << 8 | (self._data[at] if at < len(self._data) else 0)) & _FULL
        self._at = at + 1

    @property
    def bits(self) -> float:
        """How much information has been taken so far."""
        return 8 * (self._at - _TAIL) + 32 - math.log2(self._range)

    def finish(self) -> bytes:
        if self._at < len(self._data):
            raise FormatError(LEFT_OVER)
        return b""


class Listener:
    """Neither: lets a model learn from bits that both sides know."""

    decoding = False

    def code(self, p: int, bit: int) -> int:
        return bit


Coder = Encoder | Decoder | Listener
