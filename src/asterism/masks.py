"""Which weights stay: scores, thresholds, and selection of an exact number.

Pure functions of tensors. A mask is a bool tensor, true where a weight is kept. Selection over
many layers finds the k-th largest score by its bits, in two histograms of 2¹⁵ and 2¹⁶ bins, so
that nothing is sorted and nothing is joined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from asterism.errors import InputError

Score = Callable[[Tensor], Tensor]

OUT = -1.0
"""The score of a weight that is out of the running; all others are ≥ 0."""


def magnitude(theta: Tensor) -> Tensor:
    """|theta|."""
    return theta.abs()


def lamp(theta: Tensor) -> Tensor:
    """theta² over the sum of the layer's theta² at or above it (Lee et al. 2021).

    A layer's largest weight scores 1, so a global cut leaves each layer something, and layers
    of different scales compete fairly.
    """
    squares = theta.detach().flatten().double().square()
    ordered, order = squares.sort(descending=True, stable=True)
    tail = ordered.cumsum(0)
    scores = torch.empty_like(squares)
    scores[order] = torch.where(tail > 0, ordered / tail, 0.0)
    return scores.to(torch.float32).view(theta.shape)


SCORES: dict[str, Score] = {"magnitude": magnitude, "lamp": lamp}


def count(density: float, total: int) -> int:
    """How many of `total` weights a density stands for, rounded to the nearest."""
    if not 0 < density <= 1:
        raise InputError(f"density must lie in (0, 1], got {density}")
    return math.floor(density * total + 0.5)


def quality_threshold(theta: Tensor, quality: float) -> float:
    """quality × the layer's standard deviation: LWC's threshold (Han et al. 2015)."""
    return quality * float(theta.detach().double().std(correction=0))


def protect_largest(scores: Tensor) -> Tensor:
    """The scores with the layer's first largest raised to infinity: no layer loses everything.

    Where all weights are out of the running there is nothing left to protect.
    """
    protected = scores.clone(memory_format=torch.contiguous_format).flatten()
    if (protected >= 0).any():
        protected[protected.argmax()] = math.inf
    return protected.view(scores.shape)


def keep_largest(scores: Sequence[Tensor], count: int) -> list[Tensor]:
    """Masks that keep exactly `count` of the highest scores over all layers together.

    Ties go to the earlier layer, then to the earlier position in it.

    >>> keep_largest([torch.tensor([3.0, 1.0]), torch.tensor([1.0, 2.0])], 3)
    [tensor([True, True]), tensor([False,  True])]
    """
    bits = [_ordered_bits(score) for score in scores]
    running = sum(int((each >= 0).sum()) for each in bits)
    if not 0 <= count <= running:
        raise InputError(f"cannot keep {count} weights: {running} are left to choose from")
    threshold, ties = _kth_largest(bits, count)
    masks = []
    for each in bits:
        mask = each > threshold
        tied = (each == threshold).flatten().nonzero().flatten()[:ties]
        mask.view(-1)[tied] = True
        ties -= len(tied)
        masks.append(mask)
    return masks


def _ordered_bits(score: Tensor) -> Tensor:
    """Non-negative floats order as their bits do; OUT becomes a negative integer."""
    if score.isnan().any():
        raise InputError("the scores contain NaN: has training diverged?")
    return score.detach().float().contiguous().view(torch.int32)


def _kth_largest(bits: Sequence[Tensor], count: int) -> tuple[int, int]:
    """The bits of the count-th largest score, and how many scores equal to it are needed."""
    if count == 0:
        return 2**31 - 1, 0
    high = torch.stack([_histogram(each[each >= 0] >> 16, 2**15) for each in bits]).sum(0)
    top, needed = _bin_from_above(high, count)
    low = torch.stack([_histogram(each[(each >> 16) == top] & 0xFFFF, 2**16) for each in bits]).sum(
        0
    )
    bottom, needed = _bin_from_above(low, needed)
    return (top << 16) | bottom, needed


def _histogram(values: Tensor, bins: int) -> Tensor:
    return torch.bincount(values, minlength=bins)


def _bin_from_above(histogram: Tensor, count: int) -> tuple[int, int]:
    """The bin in which the count-th entry from the top lies, and its rank within that bin."""
    from_above = histogram.flip(0).cumsum(0)
    position = int(torch.searchsorted(from_above, count))
    above = int(from_above[position - 1]) if position else 0
    return len(histogram) - 1 - position, count - above
