"""The two networks of the MNIST experiments, for 28×28 grey images."""

import torch.nn.functional as F
from torch import Tensor, nn


class LeNet5(nn.Module):
    """LeNet-5-Caffe: (N, 1, 28, 28) → (N, 10), 431,080 parameters of which 430,500 weights.

    | layer | weight          | weights | output       |
    |-------|-----------------|---------|--------------|
    | conv1 | (20, 1, 5, 5)   |     500 | (20, 24, 24) |
    | conv2 | (50, 20, 5, 5)  |  25,000 | (50, 8, 8)   |
    | fc1   | (500, 800)      | 400,000 | (500,)       |
    | fc2   | (10, 500)       |   5,000 | (10,)        |

    Each convolution is followed by a 2×2 max-pooling and, as in Caffe, by no ReLU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, 10)

    def forward(self, images: Tensor) -> Tensor:
        features = F.max_pool2d(self.conv1(images), 2)
        features = F.max_pool2d(self.conv2(features), 2)
        hidden = F.relu(self.fc1(features.flatten(1)))
        logits: Tensor = self.fc2(hidden)
        return logits


class LeNet300(nn.Module):
    """LeNet-300-100: (N, 1, 28, 28) or (N, 784) → (N, 10), 266,610 parameters, 266,200 weights.

    | layer | weight     | weights |
    |-------|------------|---------|
    | fc1   | (300, 784) | 235,200 |
    | fc2   | (100, 300) |  30,000 |
    | fc3   | (10, 100)  |   1,000 |

    ReLU follows fc1 and fc2.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(784, 300)
        self.fc2 = nn.Linear(300, 100)
        self.fc3 = nn.Linear(100, 10)

    def forward(self, images: Tensor) -> Tensor:
        hidden = F.relu(self.fc1(images.flatten(1)))
        hidden = F.relu(self.fc2(hidden))
        logits: Tensor = self.fc3(hidden)
        return logits


def lenet5() -> LeNet5:
    """A LeNet-5-Caffe with PyTorch's default initial weights.

    >>> sum(param.numel() for param in lenet5().parameters())
    431080
    """
    return LeNet5()


def lenet300() -> LeNet300:
    """A LeNet-300-100 with PyTorch's default initial weights.

    >>> sum(param.numel() for param in lenet300().parameters())
    266610
    """
    return LeNet300()
