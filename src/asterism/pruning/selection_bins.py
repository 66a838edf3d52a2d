"""The arithmetic of `selection`: bins of weights, bounds on the scores in them, what these decide.

Works on at most some hundred thousand numbers: no weights, no ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from asterism.pruning.scores import Score

FINER = {31: 16, 16: 8, 8: 0}
"""How many free bits the parts of a bin have, by how many the bin has."""
PARTS = 256  # into which a run of equal weights is divided at once
MOST_DIVIDED = 512  # bins in one round, which bounds the tables that are counted
SLACK = 1e-12  # of the bounds, for rounding


@dataclass(frozen=True)
class Bins:
    """The bins of a histogram over each layer's magnitudes: those that hold a weight, in any order.

    The weights in a bin have magnitudes that agree, as float32, in all but the last `free_bits`
    bits. Where no bit is free they are equal, and the bin may be one part of a run of equal
    weights, which then differ by their positions only.

    layer       its number
    bits        of the smallest magnitude that falls into the bin
    free_bits   how many trailing bits may differ in it
    count       of weights in it
    above       the sum of squares of the layer's weights that are larger than those in the bin
    through     the sum of squares of the layer's weights up to the last one in the bin
    ties        how many equal weights there are in the run of which the bin is a part
    ties_ahead  how many weights of this run come before the bin
    """

    layer: Tensor
    bits: Tensor
    free_bits: Tensor
    count: Tensor
    above: Tensor
    through: Tensor
    ties: Tensor
    ties_ahead: Tensor

    def __getitem__(self, which: Tensor | slice) -> Bins:
        if isinstance(which, Tensor) and which.dtype is torch.bool:
            which = which.nonzero().flatten()  # once, and not for each field
        return Bins(*(getattr(self, field.name)[which] for field in fields(self)))

    def __len__(self) -> int:
        return len(self.count)

    @property
    def weights(self) -> int:
        """How many there are in all bins together."""
        return int(self.count.sum())

    def lowest_score(self, score: Score) -> Tensor:
        """No score in the bin is below it: the last weight's, if it were as small as can be."""
        return score(value_of(self.bits), self.through)

    def highest_score(self, score: Score) -> Tensor:
        """No score in the bin is above it: the first weight's, if it were as large as can be."""
        largest = value_of(self.bits + (1 << self.free_bits) - 1)
        return score(largest, self.above + (self.ties_ahead + 1) * largest.square())

    def is_final(self, score: Score) -> Tensor:
        """Where a bin need not be divided any more: all its weights are equal in size and score."""
        same_score = self.lowest_score(score) == self.highest_score(score)
        return (self.free_bits == 0) & ((self.count == 1) | same_score)


def join(bins: Sequence[Bins]) -> Bins:
    names = [field.name for field in fields(Bins)]
    return Bins(*(torch.cat([getattr(each, name) for each in bins]) for name in names))


def value_of(bits: Tensor) -> Tensor:
    """The float32 that has these bits, as float64."""
    return bits.to(torch.int32).view(torch.float32).double()


# ---------------------------------------------------------------------- deciding


def decide(bins: Bins, count: int, score: Score) -> tuple[Bins, Bins]:
    """The bins whose weights are among the `count` highest scores, and those still undecided.

    The count-th highest of the lower bounds is at most the count-th highest score, and that of
    the upper bounds is at least as high.

    bins   all that may hold the cut
    count  how many of their weights stay
    score  by which they are compared
    """
    if count in (0, bins.weights):
        everything = torch.full((len(bins),), count > 0)
        return bins[everything], bins[torch.zeros_like(everything)]
    lowest, highest = bins.lowest_score(score), bins.highest_score(score)
    # Where the cut may lie: no lower than `low`, no higher than `high`.
    low = _highest(lowest, bins.count, count) * (1 - SLACK)
    high = _highest(highest, bins.count, count) * (1 + SLACK)
    # All of a bin above that stays, all of a bin below it goes.
    stays, goes = lowest > high, highest < low
    return bins[stays], bins[~stays & ~goes]


def widest(bins: Bins, score: Score) -> Tensor:
    """True for the bins to divide next: those with the widest bounds that can be divided.

    The widest bounds keep the cut uncertain. Once they are narrow, most of the other bins are
    decided without being divided, and a round of few bins needs a small table only.
    """
    final = bins.is_final(score)
    width = bins.highest_score(score) / bins.lowest_score(score)
    order = width.masked_fill(final, 0.0).argsort(descending=True, stable=True)
    chosen = torch.zeros_like(final)
    chosen[order[:MOST_DIVIDED]] = True
    return chosen & ~final


def take_highest(bins: Bins, count: int, score: Score) -> Bins:
    """The first `count` weights of final bins; of the last bin perhaps not all.

    Higher scores come first, then earlier layers, then larger weights, then earlier positions.

    bins   each of one score
    count  how many of their weights are taken
    score  by which they are compared
    """
    # Sorted by the last of these first: a stable sort keeps the order of what is equal to it.
    ordered = bins[bins.ties_ahead.argsort(stable=True)]
    ordered = ordered[ordered.bits.argsort(descending=True, stable=True)]
    ordered = ordered[ordered.layer.argsort(stable=True)]
    ordered = ordered[ordered.lowest_score(score).argsort(descending=True, stable=True)]
    # A bin gets what those before it leave of `count`, at most what it holds.
    spent = ordered.count.cumsum(0) - ordered.count
    taken = torch.minimum((count - spent).clamp_(min=0), ordered.count)
    return replace(ordered, count=taken)[taken > 0]


def _highest(scores: Tensor, counts: Tensor, count: int) -> Tensor:
    """The count-th highest score, each taken `counts` times."""
    order = scores.argsort(descending=True)
    return scores[order[find_entry(counts[order], count)[0]]]


def find_entry(counts: Tensor, number: int) -> tuple[int, int]:
    """Which entry holds the weight of that number, counted from 1, and its number in there.

    >>> find_entry(torch.tensor([3, 0, 4]), 5)
    (2, 2)
    """
    reached = counts.cumsum(0)
    entry = int(torch.searchsorted(reached, number))
    return entry, number - int(reached[entry] - counts[entry])


# ---------------------------------------------------------------------- dividing


def whole_layers(number: int) -> Bins:
    """One bin for each layer, with all its weights in it; they are not counted yet."""
    zeros = torch.zeros(number, dtype=torch.int64)
    sums = zeros.double()
    return Bins(torch.arange(number), zeros, zeros + 31, zeros, sums, sums, zeros, zeros)


def split_by_magnitude(bins: Bins, filled: Tensor, table: Tensor) -> Bins:
    """The filled parts of bins with equally many free bits.

    bins    those that were counted
    filled  the numbers of the parts that are not empty in all bins, from small to large
    table   of each bin and each of these parts: how many weights it holds, the sum of their free
            bits, and the sum of the squares of these
    """
    free_bits = FINER[int(bins.free_bits[0])]
    bits = bins.bits[:, None] + (filled << free_bits)
    count, rest, square_of_rest = table
    # A magnitude is smallest + unit·rest: free bits count steps of equal size.
    smallest = value_of(bits)
    unit = value_of(bits + 1) - smallest
    squares = (
        count * smallest.square() + 2 * smallest * unit * rest + unit.square() * square_of_rest
    )
    squares = squares.where(count > 0, 0.0)  # the bits of infinity and NaN are in no weight
    # Sums run from the largest part of a bin down, on top of what comes before the bin.
    through = bins.above[:, None] + squares.flip(1).cumsum(1).flip(1)
    above = torch.cat([through, bins.above[:, None]], dim=1)[:, 1:]
    layer = bins.layer[:, None].expand_as(count)
    free, none = torch.full_like(count, free_bits), torch.zeros_like(count)
    every = (layer, bits, free, count, above, through, count, none)
    return Bins(*(each.flatten() for each in every))[count.flatten() > 0]


def split_by_position(bins: Bins) -> Bins:
    """Bins of equal weights, each in up to `PARTS` parts, which hold neighbouring positions."""
    size = (bins.count + PARTS - 1) // PARTS
    parts = (bins.count + size - 1) // size
    # Each bin is repeated for each of its parts; `ahead` is where the part begins in the run.
    parent = torch.repeat_interleave(torch.arange(len(bins)), parts)
    number = torch.arange(len(parent)) - (parts.cumsum(0) - parts)[parent]
    end = (bins.ties_ahead + bins.count)[parent]
    bins, size = bins[parent], size[parent]
    ahead = bins.ties_ahead + number * size
    count = torch.minimum(size, end - ahead)
    # From the start of the run: equal weights of equal layers get equal sums, however divided.
    through = bins.above + (ahead + count) * value_of(bins.bits).square()
    return replace(bins, count=count, through=through, ties_ahead=ahead)
