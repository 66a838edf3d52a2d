"""Where q starts after a re-weighting, and how that re-weighting's omega is normalised.

A constant factor on a layer's omega does not change the minimisers of f(q ⊙ omega); under a
gradient method it is a choice of that layer's learning rate. Each initialiser names the factor
that keeps its own kind of training on an even keel. Knows no models and no optimizers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from asterism.errors import InputError

MakeNoise = Callable[[], Tensor]


class Initialiser(ABC):
    """The contract. Pruned weights have omega = 0, and theta = q = 0 with it."""

    def factor(self, theta: Tensor, q: Tensor, omega: Tensor) -> Tensor:
        """The factor on the new omega: here RMS(omega) = 1 over the live weights.

        theta  the last solution
        q      the q that belongs to it
        omega  the new one, not normalised yet
        """
        size = root_mean_square(omega, omega != 0)
        return torch.where(size > 0, 1 / size, 1.0)

    @abstractmethod
    def start(self, theta: Tensor, q: Tensor, omega: Tensor, noise: MakeNoise) -> Tensor:
        """The starting q.

        theta  the last solution
        q      the q that belongs to it
        omega  the new one, normalised
        noise  draws standard normal numbers, one for each weight
        """


@dataclass(frozen=True)
class Exact(Initialiser):
    """q = theta / omega: the network does not move."""

    def start(self, theta: Tensor, q: Tensor, omega: Tensor, noise: MakeNoise) -> Tensor:
        return divide(theta, omega)


@dataclass(frozen=True)
class Noise(Initialiser):
    """q = theta / omega + v, v ~ N(0, sigma²) (`eq:initializer`); sigma in units of RMS(q)."""

    sigma: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < math.inf:
            raise InputError(f"sigma must be non-negative and finite, got {self.sigma}")

    def start(self, theta: Tensor, q: Tensor, omega: Tensor, noise: MakeNoise) -> Tensor:
        exact, live = divide(theta, omega), omega != 0
        return exact + noise() * live * (self.sigma * root_mean_square(exact, live))


@dataclass(frozen=True)
class Greedy(Initialiser):
    """q stays as it was: theta moves to q ⊙ omega, and small weights become smaller at once."""

    def factor(self, theta: Tensor, q: Tensor, omega: Tensor) -> Tensor:
        """The layer's norm is unchanged: ‖q ⊙ omega‖ = ‖theta‖.

        Without it theta turns into about theta², and the signal dies on its way through.

        theta  the last solution
        q      the q that belongs to it, and stays
        omega  the new one, not normalised yet
        """
        moved = torch.linalg.vector_norm(q * omega)
        factor = torch.linalg.vector_norm(theta) / moved
        return torch.where(moved > 0, factor, 1.0)

    def start(self, theta: Tensor, q: Tensor, omega: Tensor, noise: MakeNoise) -> Tensor:
        return q


def divide(theta: Tensor, omega: Tensor) -> Tensor:
    """theta / omega, and 0 where omega is 0: a pruned weight has q = 0."""
    return (theta / omega).masked_fill_(omega == 0, 0.0)


def root_mean_square(values: Tensor, live: Tensor) -> Tensor:
    """The RMS over the live entries; the others are zero."""
    norm: Tensor = torch.linalg.vector_norm(values)
    return norm / live.sum().clamp_min(1).to(norm.dtype).sqrt()
