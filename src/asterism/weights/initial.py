"""Whether a model's weights are those that PyTorch gives a new one."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from asterism.weights.sharding import whole

FEWEST = 32
"""A smaller layer is too small to tell."""

RMS_WITHIN = 0.15
"""How far the root of the mean square may be from that of a uniform distribution."""


def is_untrained(model: nn.Module) -> bool:
    """Whether every linear layer and convolution is as PyTorch initialises it.

    That is uniform within ±1/√inputs: training moves weights beyond that bound.

    >>> layer = nn.Linear(64, 64)
    >>> is_untrained(layer)
    True
    >>> _ = nn.init.normal_(layer.weight, std=0.1)
    >>> is_untrained(layer)
    False
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | _ConvNd)]
    weights = [whole(layer.weight.detach()) for layer in layers if layer.weight.numel() >= FEWEST]
    return bool(weights) and all(map(_is_uniform, weights))


def _is_uniform(weight: Tensor) -> bool:
    bound = 1 / math.sqrt(weight.numel() / len(weight))
    sizes = weight.double().abs()
    rms = float(sizes.square().mean().sqrt()) * math.sqrt(3) / bound
    return float(sizes.max()) <= bound * (1 + 1e-6) and abs(rms - 1) < RMS_WITHIN
