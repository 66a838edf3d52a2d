"""The probability of the next bit, mixed from what each of its contexts has seen.

A context is a cell with two counts: the bits seen in it, and the ones among them. One of a bit's
contexts is its base, with probability p₀; each other cell's own estimate leans on p₀ as if it had
seen PRIOR bits of that kind, so that an unseen cell has no opinion:

    pᵢ = (ones·2¹⁶ + prior·p₀) / (seen + prior)
    x  = stretch(p₀) + Σ wᵢ (stretch(pᵢ) − stretch(p₀)),   p = squash(x),   squash = logistic
    wᵢ ← wᵢ + rate · (bit − p) · (stretch(pᵢ) − stretch(p₀))

In log-odds the effects of a dense row and of a dense column add up, as they do in real masks; the
weights learn how much of each to believe. All arithmetic is in integers (floor division, shifts
towards −∞), tables included: each platform computes the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from asterism.file.small.ranges import Coder

ONE = 1 << 16
LEAST = 32
"""No bit is ever believed less likely than 2⁻¹¹: surprises stay affordable."""

REACH = 2047
"""Log-odds are in units of 1/256, from −8 to 8."""

CONTEXT_LIMIT = 255
BASE_LIMIT = 1023
WEIGHT_LIMIT = 1 << 20
RATE_SHIFT = 14


@cache
def squash_table() -> list[int]:
    """2¹⁶ / (1 + e^(−x/256)) for x = 0 … REACH, rounded down."""
    step = 1_148_426_689_630_428_643  # e^(−1/256) · 2⁶⁰, rounded down
    table, power = [], 1 << 60
    for _ in range(REACH + 1):
        table.append((ONE << 60) // ((1 << 60) + power))
        power = power * step >> 60
    return table


@cache
def stretch_table() -> list[int]:
    """The inverse, by the upper 12 of 16 bits: the first x with squash(x) ≥ p + 8."""
    upper = np.array(squash_table())
    ascending = np.concatenate([ONE - upper[:0:-1], upper[:-1]])  # of x = −REACH … REACH − 1
    table: list[int] = (ascending.searchsorted(np.arange(8, ONE, 16)) - REACH).tolist()
    return table


def squash(x: int) -> int:
    """The probability, in units of 2⁻¹⁶, of log-odds x, in units of 1/256."""
    table = squash_table()
    return table[min(x, REACH)] if x >= 0 else ONE - table[min(-x, REACH)]


class Mixer:
    """Codes bits, each with one base cell and one cell in each of several tables.

    coder   writes the bits, or reads them
    bases   how many base cells there are
    tables  how many cells each table has
    prior   how many bits of the base's kind an unseen cell has seen
    weight  that each table begins with, in units of 2⁻¹⁶
    """

    def __init__(
        self,
        coder: Coder,
        bases: int = 1,
        tables: Sequence[int] = (),
        prior: int = 16,
        weight: int = 22_000,
    ) -> None:
        self._coder = coder
        self._base_ones, self._base_seen = [1] * bases, [2] * bases
        self._ones = [[0] * size for size in tables]
        self._seen = [[0] * size for size in tables]
        self._weights = [weight] * len(tables)
        self._prior = prior

    def code(self, bit: int, base: int, cells: Sequence[int] = ()) -> int:
        """The bit, told to the encoder or by the decoder; all cells learn from it.

        bit    0 or 1; a decoder ignores it
        base   the number of its base cell
        cells  the number of its cell in each table; none where the base is all that is known
        """
        p0 = self._base_ones[base] * ONE // self._base_seen[base]
        p0 = min(max(p0, LEAST), ONE - LEAST)
        p, pulls = self._mix(p0, cells) if cells else (p0, ())
        bit = self._coder.code(p, bit)
        if cells:
            self._learn(bit, (ONE - p) if bit else -p, cells, pulls)
        self._base_ones[base] += bit
        self._base_seen[base] += 1
        if self._base_seen[base] > BASE_LIMIT:
            self._base_ones[base] >>= 1
            self._base_seen[base] >>= 1
        return bit

    def copy(self, coder: Coder) -> Mixer:
        """Another that knows the same and goes its own way."""
        twin = Mixer(coder, prior=self._prior)
        twin._base_ones, twin._base_seen = self._base_ones[:], self._base_seen[:]
        twin._ones, twin._seen = [t[:] for t in self._ones], [t[:] for t in self._seen]
        twin._weights = self._weights[:]
        return twin

    def forget(self, table: int) -> None:
        """Empties one table: a new row has nothing to do with the last."""
        size = len(self._ones[table])
        self._ones[table], self._seen[table] = [0] * size, [0] * size

    def _mix(self, p0: int, cells: Sequence[int]) -> tuple[int, Sequence[int]]:
        stretch, prior = stretch_table(), self._prior
        start = stretch[p0 >> 4]
        total, pulls = start << 16, []
        for ones, seen, weight, cell in zip(
            self._ones, self._seen, self._weights, cells, strict=True
        ):
            count = seen[cell]
            pull = 0
            if count:
                pull = stretch[(ones[cell] * ONE + prior * p0) // (count + prior) >> 4] - start
                total += weight * pull
            pulls.append(pull)
        return min(max(squash(total >> 16), LEAST), ONE - LEAST), pulls

    def _learn(self, bit: int, error: int, cells: Sequence[int], pulls: Sequence[int]) -> None:
        weights = self._weights
        for i, (cell, pull) in enumerate(zip(cells, pulls, strict=True)):
            if pull:
                weight = weights[i] + (error * pull >> RATE_SHIFT)
                weights[i] = min(max(weight, -WEIGHT_LIMIT), WEIGHT_LIMIT)
            ones, seen = self._ones[i], self._seen[i]
            ones[cell] += bit
            seen[cell] += 1
            if seen[cell] > CONTEXT_LIMIT:
                ones[cell] >>= 1
                seen[cell] >>= 1
