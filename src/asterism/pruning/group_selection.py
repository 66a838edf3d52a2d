"""Which groups stay: the cut where weights live and die together.

A group is kept whole or goes whole. Single weights beside them are groups of one, so that layers
of both kinds compete by the same scores. Pure functions of tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from asterism.pruning.scores import OUT, SCORES, score_all
from asterism.weights.partition import Partition


@dataclass(frozen=True)
class Units:
    """The candidates of one layer: a score each, and how many live weights each one holds."""

    score: Tensor
    size: Tensor

    @property
    def alive(self) -> bool:
        return bool(self.size.any())


def measure(theta: Tensor, kept: Tensor, groups: Partition | None, score: str) -> Units:
    """The live groups of a layer with their scores; of the dead ones OUT."""
    if groups is None:
        scores, size = score_all(theta * kept, SCORES[score]).flatten(), kept.flatten().long()
    else:
        magnitudes, size = rms(theta * kept, groups), groups.sums(kept.long())
        scores = score_all(magnitudes, SCORES[score], groups.sizes)
    return Units(scores.masked_fill(size == 0, OUT), size)


def rms(theta: Tensor, groups: Partition) -> Tensor:
    """‖theta_G‖ / √n of each group; pruned weights count as zeros."""
    return groups.magnitudes(groups.reduce(theta.square()))


def keep_best(layers: Sequence[Units], budget: int) -> list[Tensor]:
    """For each layer which of its groups stay: the best of all, as many as fit in the budget.

    Groups are taken by falling score until the next one would bring more than `budget` weights;
    ties go to the earlier layer, then to the earlier group.
    """
    scores = torch.cat([layer.score.double() for layer in layers])
    sizes = torch.cat([layer.size for layer in layers])
    order = scores.argsort(descending=True, stable=True)
    chosen = torch.zeros_like(sizes, dtype=torch.bool)
    chosen[order] = sizes[order].cumsum(0) <= budget
    return list(torch.split(chosen, [len(layer.size) for layer in layers]))


def protect_best(layer: Units) -> Units:
    """The layer's first best group raised above all others, so that it stays."""
    if not layer.alive:
        return layer
    score = layer.score.clone()
    score[score.argmax()] = math.inf
    return Units(score, layer.size)


def spread(chosen: Tensor, kept: Tensor, groups: Partition | None) -> Tensor:
    """The mask of single weights that a choice of groups stands for."""
    of_weights = chosen.view(kept.shape) if groups is None else groups.spread(chosen)
    return of_weights & kept
