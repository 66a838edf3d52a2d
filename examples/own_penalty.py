"""A penalty of your own: any concave function of the magnitude, in two lines or as a class.

    python examples/own_penalty.py

The one tried here is the arctangent, g = atan(z / tau): bounded, so that large weights are left
alone even more than by the logarithm.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import asterism
from asterism.experiments.data import load
from asterism.scaling.penalties import Penalty, Scale
from asterism.weights.metrics import error_percent, kurtosis

# The short way: the slope comes from autograd.
SHORT = asterism.Concave(lambda z: torch.atan(z / 0.5))


@dataclass(frozen=True)
class Arctangent(Penalty):
    """g = atan(z / tau), psi = tau / (z² + tau²), omega = 1 / psi."""

    tau: float = 0.5
    relative: bool = True
    order = 1

    def value(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        return torch.atan(z / self._tau(scale))

    def psi(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        return self._tau(scale) / (z * z + self._tau(scale) ** 2)

    def omega(self, z: Tensor, scale: Scale = 1.0, previous: Tensor | None = None) -> Tensor:
        return self.psi(z, scale).reciprocal()

    def _tau(self, scale: Scale) -> Scale:
        return self.tau * scale if self.relative else self.tau


def train(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor,
          epochs: int) -> None:  # fmt: skip
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds, to see that it works")
    epochs = 1 if parser.parse_args().quick else 8
    data = load("digits")
    images, labels = data.train.images.flatten(1), data.train.labels
    others, answers = data.validation.images.flatten(1), data.validation.labels

    penalties = {
        "arctangent as a function": SHORT,
        "arctangent as a class": Arctangent(),
        "re-weighted ℓ1": asterism.ReweightedL1(),
    }
    for name, penalty in penalties.items():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
        inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        train(model, inner, images, labels, 2 * epochs)
        dense = error_percent(model, others, answers)
        optimizer = asterism.ProximalReweighting(inner, model, penalty, lam=0.02)
        train(model, optimizer, images, labels, epochs)
        tails = kurtosis(model[0].weight)
        optimizer.lam = 0.0  # from here on cuts and plain training
        for density in (0.2, 0.1, 0.05, 0.03):
            optimizer.prune(density=density, at_most=True)
            train(model, optimizer, images, labels, max(1, epochs // 2))
        error = error_percent(model, others, answers)
        print(f"{name}: kurtosis {tails:.1f} before the cut,", end=" ")
        print(f"error {error:.1f} % with 3 % of the weights, {dense:.1f} % before")


if __name__ == "__main__":
    main()
