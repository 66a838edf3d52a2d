"""Copies of models."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)


def copied(model: Model) -> Model:
    """A copy of a model, whatever it holds.

    Legacy weight norm leaves a weight with a history in its module, which torch refuses to copy:
    such a tensor is copied without it, and computed anew at the next forward pass.

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> copied(layer).weight.shape
    torch.Size([3, 2])
    """
    held = [each for module in model.modules() for each in vars(module).values()]
    held += [item for each in held if isinstance(each, list) for item in each]
    computed = [each for each in held if isinstance(each, Tensor) and not each.is_leaf]
    return copy.deepcopy(model, {id(each): each.detach().clone() for each in computed})
