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
from asterism.experiments.data.mnist import load
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
    options = parser.parse_args()
    epochs = 1 if options.quick else 6
    data = load("digits")
    images, labels = data.train.images.flatten(1), data.train.labels

    penalties = {"as a function": SHORT, "as a class": Arctangent(), "ℓ1": asterism.ReweightedL1()}
    for name, penalty in penalties.items():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
        inner = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        train(model, inner, images, labels, 2 * epochs)
        optimizer = asterism.AffineScaling(inner, model, penalty, layers=asterism.AllLayers())
        for _ in range(4):
            optimizer.reweight()
            train(model, optimizer, images, labels, epochs)
        tails = kurtosis(model[0].weight)
        optimizer.prune(density=0.03)
        optimizer.flatten()
        train(model, optimizer, images, labels, 2 * epochs)
        error = error_percent(model, data.validation.images.flatten(1), data.validation.labels)
        print(f"arctangent {name}:" if name != "ℓ1" else "re-weighted ℓ1:", end=" ")
        print(f"kurtosis {tails:.1f} before the cut, error {error:.1f} % with 3 % of the weights")


if __name__ == "__main__":
    main()
