"""Reweighting: what the algorithms share that compute something from theta, again and again.

Owns whose turn it is at iteration t, and how strong the penalty is at a step.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch.optim import Optimizer

from asterism.errors import InputError
from asterism.scaling.layer import Layer
from asterism.scaling.schedules import Anneal, Layers
from asterism.scaling.sparse_optimizer import SparseOptimizer
from asterism.scaling.stepping import inner_optimizer as inner
from asterism.scaling.stepping.interrupts import uninterrupted

Lam = float | Callable[[int], float]
"""The weight of the penalty, or a function from the number of steps to it."""


class Reweighting(SparseOptimizer, ABC):
    """A SparseOptimizer with a penalty, which is renewed by `reweight`."""

    layers: Layers
    lam: Lam = 0.0

    @torch.no_grad()
    @uninterrupted()
    def reweight(self) -> list[str]:
        """Iteration t: renews the layers whose turn it is, from theta; returns their names."""
        self._check_unchanged()
        t = self.iteration + 1
        names = self.layers.at(t, [layer.name for layer in self._layers])
        for layer in self._layers:
            if layer.name in names:
                self._reweight(layer, t)
        self.iteration = t
        return names

    @abstractmethod
    def _reweight(self, layer: Layer, t: int) -> None:
        """What becomes of one layer at iteration t."""

    def _remember_theta(self, anneal: Anneal) -> None:
        """Where tau depends on how far theta has moved since the last re-weighting."""
        if anneal.needs_change:
            for layer in self._layers:
                layer.previous = layer.param.detach().clone()


def check_lam(lam: Lam) -> Lam:
    """lam itself; an error where it is no weight."""
    if not callable(lam) and not 0 <= lam < math.inf:
        raise InputError(f"lam must be non-negative and finite, got {lam}")
    return lam


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """An error where a word is none of those to choose from.

    name     of the argument
    value    what was given for it
    choices  the words there are
    """
    if value not in choices:
        raise InputError(f"{name} is one of {', '.join(choices)}, got {value!r}")


def pulls(optimizer: Optimizer, layers: Sequence[Layer], lam: Lam, step: int) -> list[float]:
    """lr·lam of each layer, how far its proximal step goes; empty where lam is 0.

    optimizer  the inner one, which has the learning rates
    layers     whose steps they are
    lam        the weight of the penalty
    step       how many steps were taken before
    """
    now = lam(step) if callable(lam) else lam
    if not now:
        return []
    rates = inner.learning_rates(optimizer)
    if len(rates) == 1:
        return [rates[0][0] * now] * len(layers)
    rate_of = {id(param): rate for rate, params in rates for param in params}
    return [rate_of[id(layer.param)] * now for layer in layers]
