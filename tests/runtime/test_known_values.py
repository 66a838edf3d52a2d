"""Values that depend on weights alone: computed once, and drawn into the layer before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from asterism import runtime, save


class Frozen(nn.Module):
    """A batch norm of fixed statistics, written as detection networks write it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.rand(channels) + 0.5)
        self.register_buffer("bias", torch.randn(channels))
        self.register_buffer("mean", torch.randn(channels))
        self.register_buffer("variance", torch.rand(channels) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias, mean, variance = (
            each.reshape(1, -1, 1, 1) for each in (self.weight, self.bias, self.mean, self.variance)
        )
        scale = weight * (variance + 1e-5).rsqrt()
        return x * scale + (bias - mean * scale)


class Scaled(nn.Module):
    """Times a weight of its own, which may come first."""

    def __init__(self, *shape: int, first: bool = False, plus: bool = False) -> None:
        super().__init__()
        self.scale, self.first, self.plus = nn.Parameter(torch.randn(shape)), first, plus

    def forward(self, x: Tensor) -> Tensor:
        if self.plus:
            return self.scale + x if self.first else x + self.scale
        return self.scale * x if self.first else x * self.scale


class Read(nn.Module):
    """The convolution is read as well beside its scale."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.scale = nn.Conv2d(3, 4, 3), Scaled(4, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return torch.tanh(y) + self.scale(y)


def stack(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


def conv() -> nn.Module:
    return nn.Conv2d(3, 4, 3, bias=False)


IMAGES, ROWS, TOKENS = (2, 3, 9, 9), (5, 6), (2, 7, 6)
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[str]]] = {
    "frozen norms": (
        lambda: stack(conv(), Frozen(4), nn.ReLU(), nn.Conv2d(4, 4, 3), Frozen(4)),
        IMAGES,
        ["conv + relu", "conv"],
    ),
    "product": (lambda: stack(conv(), Scaled(4, 1, 1)), IMAGES, ["conv"]),
    "the weight first": (lambda: stack(conv(), Scaled(1, 4, 1, 1, first=True)), IMAGES, ["conv"]),
    "sum": (lambda: stack(conv(), Scaled(4, 1, 1, first=True, plus=True)), IMAGES, ["conv"]),
    "one number": (lambda: stack(conv(), Scaled(1, 1, 1), nn.ReLU()), IMAGES, ["conv + relu"]),
    "a row": (lambda: stack(nn.Linear(6, 4), Scaled(4)), ROWS, ["linear"]),
    "by place": (lambda: stack(conv(), Scaled(4, 7, 7)), IMAGES, ["conv", "weight", "mul"]),
    "by column": (lambda: stack(conv(), Scaled(1, 1, 7)), IMAGES, ["conv", "weight", "mul"]),
    "after ReLU": (
        lambda: stack(conv(), nn.ReLU(), Scaled(4, 1, 1)),
        IMAGES,
        ["conv + relu", "weight", "mul"],
    ),
    "tokens": (lambda: stack(nn.Linear(6, 7), Scaled(7)), TOKENS, ["linear", "weight", "mul"]),
    "each token": (
        lambda: stack(nn.Linear(6, 6), Scaled(7, 1)),
        TOKENS,
        ["linear", "weight", "mul"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_layers_that_run_compute_what_torch_does(name: str, tmp_path: Path) -> None:
    make, shape, layers = CASES[name]
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    net = loaded(model, x, tmp_path)
    np.testing.assert_allclose(net(x.numpy()), answers(model, x), rtol=1e-4, atol=1e-5)
    if net._own.compiled:
        assert [layer.name for layer in net.layers] == layers


def test_a_layer_that_something_else_reads_keeps_its_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Read().eval(), torch.randn(IMAGES)
    net = loaded(model, x, tmp_path)
    np.testing.assert_allclose(net(x.numpy()), answers(model, x), rtol=1e-4, atol=1e-5)


def test_an_infinite_scale_is_not_multiplied_with_zeros(tmp_path: Path) -> None:
    model, x = stack(conv(), Scaled(4, 1, 1)).eval(), torch.rand(IMAGES) + 0.1
    with torch.no_grad():
        model[0].weight[:] = 0
        model[0].weight[:, 0] = 1
        model[1].scale[:] = torch.inf
    net = loaded(model, x, tmp_path)
    assert np.isposinf(net(x.numpy())).all()


def loaded(model: nn.Module, x: Tensor, folder: Path) -> runtime.Net:
    save(model, folder / "net.asterism", example_inputs=x)
    return runtime.load(folder / "net.asterism")


def answers(model: nn.Module, x: Tensor) -> np.ndarray:
    with torch.no_grad():
        return model(x).numpy()
