"""What a weight is worth, and how many stay: scores, thresholds, counts.

Pure functions of one layer's tensor. Which weights stay of all layers together is `selection`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from asterism.errors import InputError

Score = Callable[[Tensor, Tensor | None], Tensor]
"""From the magnitudes of a layer's weights, or of groups of them with their sizes."""

OUT = -1.0
"""The score of a weight that is out of the running; all others are ≥ 0."""


def magnitude(theta: Tensor, sizes: Tensor | None = None) -> Tensor:
    """|theta|."""
    return theta.abs()


def lamp(theta: Tensor, sizes: Tensor | None = None) -> Tensor:
    """theta² over the sum of the layer's theta² at or above it (Lee et al. 2021).

    A layer's largest weight scores 1, so a global cut leaves each layer something, and layers
    of different scales compete fairly. Of groups, theta is the RMS and each counts `sizes` times
    in the sum: the score of its weights, were each as large as that, which compares fairly with
    single weights and with groups of other sizes.
    """
    squares = theta.detach().flatten().double().square()
    ordered, order = squares.sort(descending=True, stable=True)
    tail = (ordered if sizes is None else ordered * sizes[order]).cumsum(0)
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
