"""The compiled pass over small layers is what torch computes, bit by bit, wherever tensors lie."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from asterism import AffineScaling, AllLayers, ReweightedL1
from asterism.kernels import library
from asterism.scaling.stepping.small_layers import SmallLayers
from support.explicit import assert_equal, make_model, train, wrap

needs_kernels = pytest.mark.skipif(library.load() is None, reason="no compiled kernels")


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many layers each compiled pass took."""
    found: list[int] = []
    to_q = SmallLayers.to_q

    def noted(self: SmallLayers) -> None:
        found.append(len(self.strides))
        to_q(self)

    monkeypatch.setattr(SmallLayers, "to_q", noted)
    return found


def conv_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 5), nn.Linear(5, 2)
    ).to(memory_format=torch.channels_last)


def train_conv(optimizer: Any, model: nn.Module, steps: range) -> None:
    for step in steps:
        x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x.to(memory_format=torch.channels_last)).square().mean().backward()
        optimizer.step()


@needs_kernels
def test_compiled_as_by_torch(passes: list[int]) -> None:
    models = []
    for kernels in ("", "none"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ASTERISM_KERNELS", kernels)
            model = conv_net()
            inner = torch.optim.AdamW(model.parameters(), lr=0.01)
            optimizer = AffineScaling(inner, model, ReweightedL1(0.3), layers=AllLayers(), lam=0.01)
            optimizer.reweight()
            train_conv(optimizer, model, range(3))
            model[2].weight.requires_grad_(False)  # another list of layers
            train_conv(optimizer, model, range(3, 5))
            model[2].weight.requires_grad_(True)
            optimizer.reweight()
            train_conv(optimizer, model, range(5, 7))
        models.append(model)
    assert_equal(*models)
    assert {*passes} == {2, 3}


@needs_kernels
def test_a_copy_does_not_write_to_the_original(passes: list[int]) -> None:
    model = make_model(torch.float32)
    optimizer = wrap(model)
    optimizer.reweight()
    train(model, optimizer, range(2))
    other, twin = copy.deepcopy((model, optimizer))
    before = copy.deepcopy(model)
    train(other, twin, range(2, 4))
    assert_equal(model, before)
    train(model, optimizer, range(2, 4))
    assert_equal(model, other)
    assert passes == [2] * 6


class Moving(torch.optim.SGD):
    """Puts its parameters into new memory at each step, as some optimizers do."""

    def step(self, closure: Any = None) -> None:
        for param in self.param_groups[0]["params"]:
            param.data = param.data - 0.05 * param.grad


@pytest.mark.parametrize("density", [None, 0.5, 0.1])
def test_an_optimizer_that_moves_its_parameters(density: float | None) -> None:
    """What was theirs is not written to any more."""
    models = [make_model(torch.float32) for _ in range(2)]
    for model, kind in zip(models, (Moving, torch.optim.SGD), strict=True):
        optimizer = wrap(model, kind(model.parameters(), lr=0.05))
        optimizer.reweight()
        if density is not None:
            optimizer.prune(density=density)
        for step in range(3):
            old = [param.data for param in model.parameters()]
            train(model, optimizer, range(step, step + 1))
            assert kind is torch.optim.SGD or old[0] is not model.fc1.weight.data
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_in_another_order_are_left_to_torch(passes: list[int]) -> None:
    models = [make_model(torch.float32) for _ in range(2)]
    for model, turned in zip(models, (True, False), strict=True):
        optimizer = wrap(model)
        optimizer.reweight()
        noise = torch.Generator().manual_seed(0)
        for param in model.parameters():
            gradient = torch.randn(param.shape, generator=noise)
            param.grad = gradient.t().contiguous().t() if turned and param.ndim == 2 else gradient
        optimizer.step()
    assert_equal(*models)
    assert len(passes) == (library.load() is not None)
