"""Numbers, lists, names, settings and ranges as bytes: what the bytes of a graph are made of."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence

from asterism.errors import FormatError
from asterism.graph.stages import Number

MAX_RANK = 8
MAX_NUMBER = 2**31 - 1


def zigzag(number: int) -> int:
    """Numbers of either sign as numbers from 0, those near 0 first."""
    return 2 * number if number >= 0 else -2 * number - 1


def unzigzag(number: int) -> int:
    return -(number + 1) // 2 if number % 2 else number // 2


STEPS, MIDDLE = 8, 128  # of a range, from one power of two to the next; the byte of 1.0


def write_ranges(ranges: Sequence[float]) -> bytes:
    """A byte each, for the next eighth of a power of two: at most 9 % more.

    0 stands for a range that is not known, or is too large or too small for a byte.

    >>> list(write_ranges([0.0, 1.0, 3.0])), read_ranges(write_ranges([0.0, 1.0, 4.0]))
    ([0, 128, 141], (0.0, 1.0, 4.0))
    """
    places = [math.ceil(STEPS * math.log2(each)) + MIDDLE if each else 0 for each in ranges]
    return bytes(place if 0 < place < 256 else 0 for place in places)


def read_ranges(data: bytes) -> tuple[float, ...]:
    return tuple(2 ** ((byte - MIDDLE) / STEPS) if byte else 0.0 for byte in data)


class Writer:
    def __init__(self) -> None:
        self.bytes = bytearray()

    def number(self, number: int) -> None:
        """Seven bits a byte, the lowest first."""
        if not 0 <= number <= 2 * MAX_NUMBER + 1:
            raise FormatError(f"the number {number} does not fit into a graph")
        while number >= 128:
            self.bytes.append(number % 128 + 128)
            number //= 128
        self.bytes.append(number)

    def list(self, numbers: tuple[int, ...]) -> None:
        if len(numbers) > MAX_RANK:
            raise FormatError(f"{len(numbers)} dimensions are more than the {MAX_RANK} of a graph")
        self.number(len(numbers))
        for number in numbers:
            self.number(number)

    def text(self, text: str) -> None:
        encoded = text.encode()
        self.number(len(encoded))
        self.bytes += encoded

    def settings(self, numbers: Iterable[Number], defaults: Mapping[str, Number]) -> None:
        """Without those at the end that have their defaults."""
        pairs = list(zip(numbers, defaults.values(), strict=True))
        while pairs and pairs[-1][0] == pairs[-1][1]:
            pairs.pop()
        self.number(len(pairs))
        for number, default in pairs:
            if isinstance(default, float):
                self.bytes += struct.pack("<d", number)
            else:
                self.number(zigzag(int(number)))


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.place:
            raise FormatError(f"the graph ends early, at byte {len(self.data)}")
        self.place += size
        return self.data[self.place - size : self.place]

    def number(self) -> int:
        number = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            number += (byte % 128) << shift
            if byte < 128:
                if number > 2 * MAX_NUMBER + 1:
                    break
                return number
        raise FormatError(f"a number in the graph is too large, at byte {self.place}")

    def count(self) -> int:
        """How many things follow, of at least a byte each."""
        count = self.number()
        if count > len(self.data) - self.place:
            raise FormatError(f"the graph announces {count} entries and ends before")
        return count

    def list(self) -> tuple[int, ...]:
        count = self.number()
        if count > MAX_RANK:
            raise FormatError(f"{count} dimensions are more than the {MAX_RANK} of a graph")
        return tuple(self.number() for _ in range(count))

    def text(self) -> str:
        try:
            return self.take(self.number()).decode()
        except UnicodeDecodeError as error:
            raise FormatError("a name in the graph is not UTF-8") from error

    def settings(self, defaults: Mapping[str, Number]) -> dict[str, Number]:
        count = self.number()
        if count > len(defaults):
            raise FormatError(f"a layer of the graph has {count} settings of {len(defaults)}")
        settings: dict[str, Number] = {}
        for name, default in list(defaults.items())[:count]:
            if isinstance(default, float):
                number: Number = struct.unpack("<d", self.take(8))[0]
            else:
                number = unzigzag(self.number())
            settings[name] = number
        return settings

    def end(self) -> None:
        if self.place != len(self.data):
            raise FormatError(f"{len(self.data) - self.place} bytes are left after the graph")
