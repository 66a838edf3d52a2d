"""Few values in the place of many: a codebook per tensor, zero kept exactly zero.

Lloyd's algorithm on a line: each weight goes to the nearest entry, each entry to the mean of its
weights. Entries keep only a few bits of mantissa, as the table in the file pays for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from asterism.errors import InputError
from asterism.file.dtypes import DType, from_words, to_words, widen_bfloat16

MAX_BITS = 12
ROUNDS = 50
EXTRA_MANTISSA_BITS = 2
FEW = 4
"""With fewer weights per entry a codebook costs more than it saves: they are only rounded."""

Floats = NDArray[np.floating[Any]]
Doubles = NDArray[np.float64]


def quantise(weights: Floats, bits: int) -> Floats:
    """The weights with at most 2^bits different values beside zero, or, of few weights, rounded.

    >>> quantise(np.array([0.0, 1.0, 1.02, -2.0, -2.1], np.float32), 1)
    array([ 0.,  1.,  1., -2., -2.], dtype=float32)
    """
    if not 1 <= bits <= MAX_BITS:
        raise InputError(f"bits must be 1 to {MAX_BITS}, got {bits}")
    flat = weights.reshape(-1)
    alive = np.flatnonzero(flat)
    values = flat[alive].astype(np.float64)
    if not np.isfinite(values).all():
        raise InputError("cannot quantise infinities or NaN: has training diverged?")
    if len(values) > FEW << bits:
        book = codebook(values, bits)
        values = book[nearest(values, book)]
    values = _round(values, bits + EXTRA_MANTISSA_BITS)
    found = np.zeros_like(flat)  # and so −0 becomes 0
    found[alive] = values
    # What is tiny must not become zero: the mask is not ours to change.
    lost = alive[found[alive] == 0]
    found[lost] = flat[lost]
    return found.reshape(weights.shape)


def quantise_elements(array: NDArray[Any], dtype: DType, bits: int) -> NDArray[Any]:
    """`quantise` for an array as a file holds it: bfloat16 as its bits.

    array  of one of the types in `FLOATS`
    dtype  its element type, which numpy may not know
    bits   at most 2^bits different values are left beside zero
    """
    if dtype.name != "bfloat16":
        return quantise(array, bits)
    wide = quantise(widen_bfloat16(to_words(array, dtype)), bits).view("<u4")
    return from_words(wide + np.uint32(0x8000) >> np.uint32(16), dtype, array.shape)


def codebook(values: Doubles, bits: int) -> Doubles:
    """At most 2^bits entries, ascending, that are nearest to the values in the mean square."""
    values = np.sort(values)
    distinct: Doubles = values[np.append(True, values[1:] != values[:-1])]
    if len(distinct) <= 1 << bits:
        return distinct
    book = np.quantile(values, (np.arange(1 << bits) + 0.5) / (1 << bits))
    # Sorted, the weights of an entry lie side by side, and their sum is a difference of two.
    sums, edges = np.append(0.0, np.cumsum(values)), np.zeros(0, np.intp)
    for _ in range(ROUNDS):
        before, ends = edges, values.searchsorted(_between(book), "right")
        edges = np.concatenate(([0], ends, [len(values)]))
        if np.array_equal(edges, before):
            break
        book = _means(edges, sums[edges], book)
    return book


def _means(edges: NDArray[np.intp], sums: Doubles, book: Doubles) -> Doubles:
    """The mean of the weights between two edges each; an entry without any stays."""
    count, total = edges[1:] - edges[:-1], sums[1:] - sums[:-1]
    means = np.divide(total, count, out=book.copy(), where=count > 0)
    return means if (means[1:] > means[:-1]).all() else np.unique(means)


def nearest(values: NDArray[Any], book: NDArray[Any]) -> NDArray[np.intp]:
    """The place in an ascending codebook of the entry nearest to each value."""
    return np.searchsorted(_between(book), values)


def _between(book: NDArray[Any]) -> NDArray[Any]:
    return np.asarray((book[1:] + book[:-1]) / 2)


def _round(values: Doubles, mantissa_bits: int) -> Doubles:
    mantissa, exponent = np.frexp(values)
    scale = 2.0 ** (mantissa_bits + 1)
    return np.ldexp(np.rint(mantissa * scale) / scale, exponent)
