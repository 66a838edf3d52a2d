"""What retraining a sparse LeNet-5 gains from computing with its live units and weights alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from asterism import Masked, compact, live_forward
from asterism.experiments.networks import lenet5
from asterism.experiments.training import Forward
from benchmarks.timing import median_ratio
from benchmarks.training import OPTIMIZERS, batch, channels_last, step

# Density, and the live units of conv1, conv2 and fc1, as in the networks of the reproduction.
NETWORKS = {0.1: (18, 45, 300), 0.01: (12, 30, 150), 0.003: (9, 23, 90)}


def report() -> Iterator[str]:
    yield "retraining LeNet-5, batch 128, forward, backward and step, against the whole network:"
    for density, units in NETWORKS.items():
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


def stepper(model: nn.Module, forward: Forward) -> Callable[[], None]:
    optimizer = wrapped(model)
    optimizer.flatten()
    images, labels = batch()
    return lambda: step(forward, optimizer, images, labels)


def wrapped(model: nn.Module) -> Masked:
    sgd = OPTIMIZERS["SGD"](model.parameters())
    return Masked(sgd, model)
