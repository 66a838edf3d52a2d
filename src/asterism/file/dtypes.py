"""The element types of a file: how each is held in numpy, and how its bits split.

A type that numpy lacks (bfloat16, the 8-bit floats) is held as the unsigned integers with its bits,
and named beside the array. Elements are coded as sign and magnitude, with `magnitude_bits` of the
latter. Only bits are ever looked at, so that −0, infinities and every NaN come back as they were;
"zero" is the element whose bits are all 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asterism.errors import InputError

Words = NDArray[np.unsignedinteger[Any]]


class DType(NamedTuple):
    """An element type; its place in DTYPES is its number in the file."""

    name: str
    storage: str
    kind: str
    """f: sign and magnitude, as floats are; i: two's complement; u: no sign."""

    @property
    def itemsize(self) -> int:
        return np.dtype(self.storage).itemsize

    @property
    def magnitude_bits(self) -> int:
        return 8 * self.itemsize - (self.kind != "u")

    @property
    def words(self) -> np.dtype[Any]:
        return np.dtype(f"<u{self.itemsize}")

    def split(self, words: Words) -> tuple[Words, Words]:
        """(sign, magnitude) of each element."""
        if self.kind == "u":
            return np.zeros_like(words), words
        top = words.dtype.type(self.magnitude_bits)
        sign = words >> top
        if self.kind == "i":  # ~x for a negative x, so that each integer has one form
            words = np.where(sign, ~words, words)
        return sign, words & self._below

    def join(self, sign: Words, magnitude: Words) -> Words:
        """The inverse of `split`."""
        if self.kind == "u":
            return magnitude
        high = (sign << sign.dtype.type(self.magnitude_bits)).astype(magnitude.dtype)
        if self.kind == "i":
            magnitude = np.where(sign, ~magnitude & self._below, magnitude)
        return high | magnitude

    @property
    def _below(self) -> Any:
        return self.words.type((1 << self.magnitude_bits) - 1)


DTYPES = (
    DType("float32", "<f4", "f"),
    DType("float16", "<f2", "f"),
    DType("bfloat16", "<u2", "f"),
    DType("float64", "<f8", "f"),
    DType("int64", "<i8", "i"),
    DType("int32", "<i4", "i"),
    DType("int16", "<i2", "i"),
    DType("int8", "|i1", "i"),
    DType("uint8", "|u1", "u"),
    DType("bool", "|b1", "u"),
    DType("uint16", "<u2", "u"),
    DType("uint32", "<u4", "u"),
    DType("uint64", "<u8", "u"),
    DType("float8_e4m3fn", "|u1", "f"),
    DType("float8_e5m2", "|u1", "f"),
)
BY_NAME = {dtype.name: dtype for dtype in DTYPES}

FLOATS = ("float32", "float16", "bfloat16", "float64")
"""The types of weights: those that take codebooks, and in which −0 is written as 0."""


def dtype_of(name: str, array: NDArray[Any], said: str | None = None) -> DType:
    """The type of a tensor: what is said of it, else what numpy calls it.

    name   of the tensor, for an error
    array  its elements, of bfloat16 and float8 as unsigned integers
    said   the name of its type, where numpy has none

    >>> dtype_of("w", np.zeros(3, np.float16)).name
    'float16'
    """
    found = BY_NAME.get(said or array.dtype.name)
    if found is None:
        raise InputError(f"{name} has dtype {said or array.dtype}: choose one of {list(BY_NAME)}")
    if array.dtype.itemsize != found.itemsize or (
        array.dtype != np.dtype(found.storage).newbyteorder("=")
        and array.dtype.newbyteorder("=") != np.dtype(found.storage).newbyteorder("=")
    ):
        raise InputError(f"{name} is held as {array.dtype}: {found.name} needs {found.storage}")
    return found


def to_words(array: NDArray[Any], dtype: DType) -> Words:
    """The elements' bits as little-endian unsigned integers, flat, in C order."""
    stored = np.ascontiguousarray(array, np.dtype(dtype.storage))
    return stored.reshape(-1).view(dtype.words)


def from_words(words: Words, dtype: DType, shape: tuple[int, ...]) -> NDArray[Any]:
    """The inverse of `to_words`, in the machine's own byte order.

    words  the elements' bits, flat
    dtype  of the elements
    shape  of the tensor
    """
    stored = words.astype(dtype.words, copy=False).view(np.dtype(dtype.storage)).reshape(shape)
    return stored.astype(stored.dtype.newbyteorder("="), copy=False)


def widen_bfloat16(words: Words) -> NDArray[np.float32]:
    """The numbers that these bits stand for, as float32, whose upper half a bfloat16 is.

    >>> widen_bfloat16(np.array([0x3F80, 0xC000], np.uint16))
    array([ 1., -2.], dtype=float32)
    """
    return (words.astype("<u4") << 16).view("<f4")
