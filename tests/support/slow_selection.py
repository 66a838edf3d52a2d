"""The slow reference of `pruning.selection`: score every weight, sort everything, keep the first.

Scores are float64, as they are compared there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

OUT = -1.0
"""The score of a weight that is out of the running."""


def magnitude(theta: Tensor) -> Tensor:
    return theta.detach().float().double().abs()


def lamp(theta: Tensor) -> Tensor:
    """By the definition: theta² over the sum of the layer's theta² at or above it."""
    squares = magnitude(theta).flatten().square()
    ordered, order = squares.sort(descending=True, stable=True)
    total = ordered.cumsum(0)
    scores = torch.empty_like(squares)
    scores[order] = torch.where(total > 0, ordered / total, 0.0)
    return scores.view(theta.shape)


SCORES = {"magnitude": magnitude, "lamp": lamp}


def keep_largest(scores: Sequence[Tensor], keep: int) -> list[Tensor]:
    joined = torch.cat([score.flatten() for score in scores])
    mask = torch.zeros(len(joined), dtype=torch.bool)
    mask[joined.argsort(descending=True, stable=True)[:keep]] = True
    parts = mask.split([score.numel() for score in scores])
    return [part.view(score.shape) for part, score in zip(parts, scores, strict=True)]


def select(
    thetas: Sequence[Tensor], keep: int, score: str, alive: Sequence[Tensor] | None = None
) -> list[Tensor]:
    alive = alive or [torch.ones_like(theta) for theta in thetas]
    scores = [
        SCORES[score](theta * (live != 0)).masked_fill(live == 0, OUT)
        for theta, live in zip(thetas, alive, strict=True)
    ]
    return keep_largest(scores, keep)
