"""Bins of weights, the bounds they put on the scores inside, and what those bounds decide.

The arithmetic of `selection`, on a few thousand numbers: no weights, no ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

Score = Callable[[Tensor, Tensor], Tensor]
"""A weight's score from its magnitude and the sum of the layer's squares down to it, itself
included; it falls when the magnitude falls and when the sum rises."""

PIECES = 1024  # into which a run of equal weights is divided at once
SLACK = 1e-12  # of the bounds, for rounding


@dataclass(frozen=True)
class Bins:
    """Bins that hold something, layer by layer, each layer from its largest weights down.

    layer           its number
    bits            of the smallest magnitude that would fall into the bin
    count           of weights in it
    small, large    the magnitudes it may hold
    before, through the layer's sum of squares down to the bin, and down to its end
    run             of how many equal weights this bin is a piece; `count` where it is no piece
    """

    layer: Tensor
    bits: Tensor
    count: Tensor
    small: Tensor
    large: Tensor
    before: Tensor
    through: Tensor
    run: Tensor

    def __getitem__(self, which: Tensor) -> Bins:
        return Bins(*(getattr(self, field.name)[which] for field in fields(self)))

    def __len__(self) -> int:
        return len(self.count)

    def least(self, score: Score) -> Tensor:
        """No score in the bin is below it: the last weight's, were it as small as can be."""
        return score(self.small, self.through)

    def most(self, score: Score) -> Tensor:
        """No score in the bin is above it: the first weight's, were it as large as can be."""
        return score(self.large, self.before + self.large.square())

    def settled(self, score: Score) -> Tensor:
        """Where the bin has one score."""
        return (self.count == 1) | (self.least(score) == self.most(score))

    def divided(self, score: Score) -> Bins:
        """Runs of equal weights, where they are not settled, in pieces by their positions."""
        size = (self.count + PIECES - 1) // PIECES
        size = torch.where(self.settled(score), self.count, size)
        pieces = (self.count + size - 1) // size
        parent = torch.repeat_interleave(torch.arange(len(self)), pieces)
        first_piece = (pieces.cumsum(0) - pieces)[parent]
        bins, size = self[parent], size[parent]
        start = (torch.arange(len(parent)) - first_piece) * size
        stop = torch.minimum(start + size, bins.count)
        square = bins.large.square()
        return replace(
            bins,
            count=stop - start,
            before=bins.before + start * square,
            through=bins.before + stop * square,
        )


def join(bins: Sequence[Bins]) -> Bins:
    names = [field.name for field in fields(Bins)]
    return Bins(*(torch.cat([getattr(each, name) for each in bins]) for name in names))


def decide(bins: Bins, count: int, score: Score) -> tuple[Bins, Bins]:
    """The bins that are in for sure, and those of which it is not yet known.

    The count-th largest of the lower bounds is at most the count-th largest score, and that of the
    upper bounds at least.
    """
    least, most = bins.least(score), bins.most(score)
    if count == 0:
        nothing = torch.zeros(len(bins), dtype=torch.bool)
        return bins[nothing], bins[nothing]
    low = _largest(least, bins.count, count) * (1 - SLACK)
    high = _largest(most, bins.count, count) * (1 + SLACK)
    sure = least > high
    return bins[sure], bins[~sure & (most >= low)]


def share_out(bins: Bins, count: int, score: Score) -> Bins:
    """The first `count` of settled bins: higher scores, then earlier layers, then positions."""
    order = bins.least(score).argsort(descending=True, stable=True)
    ordered = bins[order]
    spent = ordered.count.cumsum(0) - ordered.count
    taken = torch.minimum((count - spent).clamp_(min=0), ordered.count)
    return replace(ordered, count=taken)[taken > 0]


def _largest(scores: Tensor, counts: Tensor, count: int) -> Tensor:
    """The count-th largest score, each taken `counts` times."""
    order = scores.argsort(descending=True)
    return scores[order[find(counts[order], count)[0]]]


def find(counts: Tensor, number: int) -> tuple[int, int]:
    """In which entry the weight of that number falls, counted from 1, and its number there."""
    reached = counts.cumsum(0)
    entry = int(torch.searchsorted(reached, number))
    return entry, number - int(reached[entry] - counts[entry])
