"""Numbers as few bytes: codes for few values, and whole numbers of seven bits a byte."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asterism.graph.stages import Array


class Coded(NamedTuple):
    """Floats as codes of `bits` bits each for one of the values, or as they are, of 0 bits."""

    bits: int
    values: Array
    codes: bytes

    @property
    def size(self) -> int:
        """The bytes of values and codes together."""
        return 4 * len(self.values) + len(self.codes)


def coded(array: Array) -> Coded:
    """Floats in the smaller of both forms.

    >>> coded(np.float32([1, 2, 1, 1])).codes, coded(np.float32([1, 2, 1, 1])).bits
    (b'\\x02', 1)
    """
    flat = np.ascontiguousarray(array, np.float32).reshape(-1)
    # By their bits: 0 and −0 differ, and what is not a number is like itself.
    words, codes = np.unique(flat.view(np.uint32), return_inverse=True)
    bits = next((b for b in (1, 2, 4, 8) if len(words) <= 1 << b), 0)
    plain = Coded(0, flat, b"")
    if not bits:
        return plain
    small = Coded(bits, words.view(np.float32), packed(codes.reshape(-1), bits))
    return small if small.size < plain.size else plain


def packed(codes: npt.NDArray[np.integer], bits: int) -> bytes:
    """Codes of 1, 2, 4 or 8 bits, the first in the lowest bits of a byte."""
    each = 8 // bits
    padded = np.zeros(-(-len(codes) // each) * each, np.uint8)
    padded[: len(codes)] = codes
    shifts = np.arange(each, dtype=np.uint8) * bits
    return bytes((padded.reshape(-1, each) << shifts).sum(1).astype(np.uint8))


def varints(numbers: Iterable[int]) -> bytes:
    """Whole numbers from 0 on, of seven bits a byte, the lowest first.

    >>> varints([1, 127, 128])
    b'\\x01\\x7f\\x80\\x01'
    """
    out = bytearray()
    for number in numbers:
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        out.append(number)
    return bytes(out)


def gaps(rows: Iterable[npt.NDArray[np.integer]]) -> list[int]:
    """Of each row how many places it has, and how many are left out before each of them.

    >>> gaps([np.array([0, 1, 5]), np.array([2])])
    [3, 0, 0, 3, 1, 2]
    """
    found: list[int] = []
    for row in rows:
        found.append(len(row))
        found += np.diff(row, prepend=-1).astype(np.int64).__sub__(1).tolist()
    return found
