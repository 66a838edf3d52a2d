"""Scores of weights, and counts and thresholds that follow from a density or a quality.

Pure functions of tensors. Which weights stay is chosen in `selection`, which groups of them in
`group_selection`; both compare by the scores that are defined here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from asterism.errors import InputError

Score = Callable[[Tensor, Tensor], Tensor]
"""A weight's score from its magnitude and the sum of the layer's squares down to it, itself
included. It falls when the magnitude falls and when the sum rises."""

OUT = -1.0
"""The score of a weight that may not be chosen; all others are at least 0."""


def magnitude(value: Tensor, total: Tensor) -> Tensor:
    """|theta|."""
    return value


def lamp(value: Tensor, total: Tensor) -> Tensor:
    """theta² over the sum of the layer's theta² at or above it (Lee et al. 2021).

    A layer's largest weight scores 1: a global cut leaves each layer something, and layers of
    different scales compete fairly. Of equal weights the earlier counts as the larger.

    >>> lamp(torch.tensor([2.0, 1.0]), torch.tensor([4.0, 5.0]))
    tensor([1.0000, 0.2000])
    """
    return (value.square() / total).nan_to_num_(0.0)  # 0 / 0 where all weights are zero


SCORES: dict[str, Score] = {"magnitude": magnitude, "lamp": lamp}


def score_all(theta: Tensor, score: Score, sizes: Tensor | None = None) -> Tensor:
    """The scores of all weights of one layer, found by sorting them.

    theta  the weights, or the RMS of groups of weights
    score  one of `SCORES`
    sizes  of the groups: each counts that many times in the sum of squares. Its score is then
           that of its weights if each were as large as the RMS, which compares fairly with single
           weights and with groups of other sizes

    >>> score_all(torch.tensor([1.0, -2.0]), lamp)
    tensor([0.2000, 1.0000])
    """
    values = theta.detach().flatten().double().abs()
    ordered, order = values.sort(descending=True, stable=True)
    squares = ordered.square() if sizes is None else ordered.square() * sizes[order]
    scores = torch.empty_like(values)
    scores[order] = score(ordered, squares.cumsum(0))
    return scores.to(torch.promote_types(theta.dtype, torch.float32)).view(theta.shape)


def count(density: float, total: int) -> int:
    """How many of `total` weights a density stands for, rounded to the nearest.

    >>> count(0.1, 430_500)
    43050
    """
    if not 0 < density <= 1:
        raise InputError(f"density must lie in (0, 1], got {density}")
    return math.floor(density * total + 0.5)


def quality_threshold(theta: Tensor, quality: float) -> float:
    """quality × the layer's standard deviation: LWC's threshold (Han et al. 2015)."""
    return quality * float(theta.detach().double().std(correction=0))
