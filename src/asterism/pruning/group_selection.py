"""The cut where whole groups of weights stay or go.

Single weights beside them count as groups of one: layers of both kinds compete by the same scores.
Pure functions of tensors.
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
    """The groups of one layer.

    score  of each
    size   how many live weights each holds
    """

    score: Tensor
    size: Tensor

    @property
    def alive(self) -> bool:
        return bool(self.size.any())


def measure(theta: Tensor, kept: Tensor, groups: Partition | None, score: str) -> Units:
    """The groups of a layer with their scores; OUT for groups in which nothing is alive.

    theta   the weight
    kept    true where it is alive
    groups  how it is divided; None where each weight is a group
    score   the name of one of `scores.SCORES`
    """
    if groups is None:
        scores, size = score_all(theta * kept, SCORES[score]).flatten(), kept.flatten().long()
    else:
        magnitudes, size = rms(theta * kept, groups), groups.sums(kept.long())
        scores = score_all(magnitudes, SCORES[score], groups.sizes)
    return Units(scores.masked_fill(size == 0, OUT), size)


def rms(theta: Tensor, groups: Partition) -> Tensor:
    """The root mean square of each group, ‖theta_G‖ / √n; pruned weights count as zeros."""
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
    """The layer with its first best group above all others, which then stays."""
    if not layer.alive:
        return layer
    score = layer.score.clone()
    score[score.argmax()] = math.inf
    return Units(score, layer.size)


def spread(chosen: Tensor, kept: Tensor, groups: Partition | None) -> Tensor:
    """The mask of single weights that a choice of groups stands for.

    chosen  true for the groups that stay
    kept    true where a weight is alive
    groups  how the weight is divided; None where each weight is a group
    """
    of_weights = chosen.view(kept.shape) if groups is None else groups.spread(chosen)
    return of_weights & kept
