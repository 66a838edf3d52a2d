"""What retraining sparse networks gains from computing with their live units and weights alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from asterism import Masked, compact, live_forward
from asterism.experiments.networks import lenet5
from asterism.experiments.networks.resnets import resnet8, resnet20
from asterism.experiments.training import Forward
from benchmarks.timing import median_ratio
from benchmarks.training import OPTIMIZERS, batch, channels_last, step

# Density, and the live units of conv1, conv2 and fc1, as in the networks of the reproduction.
LENETS = {0.1: (18, 45, 300), 0.01: (12, 30, 150), 0.003: (9, 23, 90)}

RESNETS = {"ResNet-20": resnet20, "ResNet-8": resnet8}
DENSITIES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
WANTED = {("ResNet-20", 0.02): "   (at least 3×)", ("ResNet-20", 0.05): "   (at least 2×)"}


def report() -> Iterator[str]:
    yield from lenets()
    yield from resnets()


def resnets() -> Iterator[str]:
    yield "training ResNets on 3×32×32, batch 128, forward, backward and step, live against torch:"
    for name, make in RESNETS.items():
        for density in DENSITIES:
            found = resnet_gain(make(), density)
            winner = "" if found > 1 else ", torch wins"
            wanted = WANTED.get((name, density), "")
            yield f"  {name:9} at {100 * density:5.1f} % non-zeros: {found:.1f}×{winner}{wanted}"


def resnet_gain(model: nn.Module, density: float) -> float:
    """The gain over the same network in channels-last order, which is torch's fastest."""
    wrapped(model).prune(density=density, score="lamp")
    dense = channels_last(copy.deepcopy(model))
    images, labels = torch.randn(128, 3, 32, 32), torch.arange(128) % 10
    live = live_forward(model, images[:1])
    return median_ratio(
        stepper(dense, dense, (images.to(memory_format=torch.channels_last), labels)),
        stepper(model, live, (images, labels)),
        rounds=7,
    )


def lenets() -> Iterator[str]:
    yield "retraining LeNet-5, batch 128, forward, backward and step, against the whole network:"
    for density, units in LENETS.items():
        compacted, live = gains(density, units)
        yield (
            f"  at {100 * density:4.1f} % non-zeros: compacted {compacted:.1f}×,"
            f" compacted and live {live:.1f}×   (at least 3× at 1 %)"
        )


def gains(density: float, units: tuple[int, int, int]) -> tuple[float, float]:
    model = sparse_lenet5(density, units)
    small = channels_last(compact(model).model)
    live = live_forward(small, batch()[0][:1])
    whole = stepper(model, model)
    return (
        median_ratio(whole, stepper(small, small), rounds=100),
        median_ratio(whole, stepper(small, live), rounds=100),
    )


def sparse_lenet5(density: float, units: tuple[int, int, int]) -> nn.Module:
    """The first units of each layer alive, and among their weights a global cut."""
    torch.manual_seed(0)
    model = channels_last(lenet5())
    layers = (model.conv1, model.conv2, model.fc1)
    for layer, alive in zip(layers, units, strict=True):
        layer.weight.data[alive:] = 0
        layer.bias.data[alive:] = 0
    wrapped(model).prune(density=density, score="lamp")
    return model


def stepper(
    model: nn.Module, forward: Forward, given: tuple[Tensor, Tensor] | None = None
) -> Callable[[], None]:
    optimizer = wrapped(model)
    optimizer.flatten()
    images, labels = given or batch()
    return lambda: step(forward, optimizer, images, labels)


def wrapped(model: nn.Module) -> Masked:
    sgd = OPTIMIZERS["SGD"](model.parameters())
    return Masked(sgd, model)
