"""Networks that the capture and runtime tests share: small, seeded, pruned at random."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asterism.experiments.networks import lenet5, lenet300
from asterism.graph.capture import capture
from asterism.graph.network import Graph
from asterism.runtime import Net


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.short = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


def resnet20() -> nn.Module:
    widths = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)]
    blocks = [Residual(*width) for width in [*widths, (64, 64, 1), (64, 64, 1)]]
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*stem, *blocks, *head)


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in [(3, 16), (16, 32), (32, 32)]:
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 64), nn.Dropout(), nn.Linear(64, 10))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(50, 70), nn.GELU(), nn.LayerNorm(70), nn.Linear(70, 33), nn.SiLU(),
        nn.Linear(33, 10), nn.Softmax(-1),
    )  # fmt: skip


def separable() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU6()]
    for inputs, outputs, stride in [(8, 16, 1), (16, 24, 2), (24, 24, 1)]:
        layers += [nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs), nn.BatchNorm2d(inputs)]
        layers += [
            nn.ReLU6(),
            nn.Conv2d(inputs, outputs, 1),
            nn.BatchNorm2d(outputs),
            nn.Hardtanh(),
        ]
    return nn.Sequential(*layers, nn.AvgPool2d(3, 2, 1), nn.Flatten(), nn.Linear(216, 10))


class Tangle(nn.Module):
    """Branches, permutations and a convolution of one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 9, 5, stride=2, padding=3, dilation=2)
        self.fc = nn.Linear(9, 12)
        self.last = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.conv(x)).transpose(1, 2)
        y = F.leaky_relu(self.fc(y)).permute(0, 2, 1)
        y = torch.cat([y.mean(-1), F.adaptive_max_pool1d(y, 1).flatten(1)], 1)
        return torch.sigmoid(self.last(y)) * self.last(y)


NETWORKS = {
    "lenet5": (lenet5, (1, 28, 28)),
    "lenet300": (lenet300, (1, 28, 28)),
    "resnet20": (resnet20, (3, 32, 32)),
    "vgg": (vgg, (3, 32, 32)),
    "mlp": (mlp, (50,)),
    "separable": (separable, (3, 24, 24)),
    "tangle": (Tangle, (6, 23)),
}


def make(name: str, density: float = 0.1) -> tuple[nn.Module, tuple[int, ...]]:
    """A network in eval mode, its norms far from the identity, and the shape of its input."""
    factory, shape = NETWORKS[name]
    torch.manual_seed(0)
    model = factory()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean = torch.randn(module.num_features) / 4
            module.running_var = torch.rand(module.num_features) + 0.5
            nn.init.normal_(module.bias)
    for param in model.parameters():
        if param.ndim > 1:
            param.data *= torch.rand_like(param) < density
            param.data /= density**0.5
    return model.eval(), shape


@cache
def graph_of(name: str) -> Graph:
    """Of a network above, captured once: it is the same at every density."""
    with torch.random.fork_rng():
        model, shape = make(name)
    return capture(model, torch.zeros(1, *shape))


def arrays_of(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def net_of(model: nn.Module, shape: tuple[int, ...], threads: int = 1) -> Net:
    return Net(capture(model, torch.zeros(1, *shape)), arrays_of(model), threads=threads)


@torch.no_grad()
def answer(model: nn.Module, x: Tensor) -> np.ndarray:
    return model.double()(x.double()).float().numpy()


def make_mlp() -> nn.Sequential:
    """784-24-10 with named layers, seeded."""
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("flatten", nn.Flatten())
    model.add_module("fc1", nn.Linear(784, 24))
    model.add_module("relu", nn.ReLU())
    model.add_module("fc2", nn.Linear(24, 10))
    return model
