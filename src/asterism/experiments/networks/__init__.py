"""The networks of the experiments, plain modules: nothing here knows of sparsity or training.

lenets     LeNet-5 and LeNet-300-100, for MNIST
resnets    ResNet-8 and ResNet-20, for CIFAR-10
catalogue  all of them by key
"""

from asterism.experiments.networks.catalogue import (
    DATA,
    INPUT_SHAPES,
    MODELS,
    NETWORK_NAMES,
    weight_shapes,
)
from asterism.experiments.networks.lenets import LeNet5, LeNet300, lenet5, lenet300
from asterism.experiments.networks.resnets import ResNet, resnet8, resnet20

__all__ = [
    "DATA",
    "INPUT_SHAPES",
    "MODELS",
    "NETWORK_NAMES",
    "LeNet5",
    "LeNet300",
    "ResNet",
    "lenet5",
    "lenet300",
    "resnet8",
    "resnet20",
    "weight_shapes",
]
