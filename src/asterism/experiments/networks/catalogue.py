"""The networks by the keys that configs, results and factories use."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from asterism.experiments.networks.lenets import lenet5, lenet300
from asterism.experiments.networks.resnets import resnet8, resnet20
from asterism.weights.names import layer

MODELS: dict[str, Callable[[], nn.Module]] = {
    "lenet5": lenet5,
    "lenet300": lenet300,
    "resnet8": resnet8,
    "resnet20": resnet20,
}
NETWORK_NAMES = {
    "lenet5": "LeNet-5",
    "lenet300": "LeNet-300-100",
    "resnet8": "ResNet-8",
    "resnet20": "ResNet-20",
}
INPUT_SHAPES = {
    "lenet5": (1, 28, 28),
    "lenet300": (1, 28, 28),
    "resnet8": (3, 32, 32),
    "resnet20": (3, 32, 32),
}
"""Of one image."""

DATA = {"lenet5": "mnist", "lenet300": "mnist", "resnet8": "cifar10", "resnet20": "cifar10"}
"""What a network is trained on, unless something else is said."""


def weight_shapes(key: str) -> dict[str, tuple[int, ...]]:
    """The shape of each layer's weight.

    >>> weight_shapes("lenet300")
    {'fc1': (300, 784), 'fc2': (100, 300), 'fc3': (10, 100)}
    """
    with torch.device("meta"):  # shapes alone: no memory, and no random number is drawn
        params = MODELS[key]().named_parameters()
    return {layer(name): tuple(param.shape) for name, param in params if param.dim() > 1}
