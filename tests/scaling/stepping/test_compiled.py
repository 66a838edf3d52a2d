"""The compiled pass over pruned and small layers is what torch computes, bit by bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from asterism import AffineScaling, AllLayers, ReweightedL1
from asterism.kernels import library
from asterism.scaling.layer import Layer
from asterism.scaling.stepping.compiled import CompiledLayers, takes
from support.explicit import assert_equal, make_model, train, wrap

FORMATS = (torch.contiguous_format, torch.channels_last)
needs_kernels = pytest.mark.skipif(library.load() is None, reason="no compiled kernels")


def make(seed: int, density: float, scaled: bool, order: torch.memory_format) -> Layer:
    noise = torch.Generator().manual_seed(seed)
    shape = (3, 2 + seed % 3, 3, 5)
    weight = torch.randn(shape, generator=noise).to(memory_format=order)
    kept = torch.rand(shape, generator=noise) < density
    kept[0, 0, 0, 0] = True
    omega = torch.rand(shape, generator=noise) + 0.1 if scaled else torch.ones(shape)
    layer = Layer("w", nn.Parameter(weight), ReweightedL1(), 1.0, torch.ones_like(weight))
    with torch.no_grad():
        layer.move(omega * kept, weight * kept)
    return layer


def gradient_of(layer: Layer, order: torch.memory_format) -> Tensor:
    noise = torch.Generator().manual_seed(7)
    gradient = torch.randn(layer.param.shape, generator=noise).to(memory_format=order)
    gradient[1, 1] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, -1.0])
    return gradient


def some_step(values: Tensor) -> None:
    """An inner step, which leaves anything where a weight is pruned."""
    values.add_(0.5).masked_fill_(values.isnan(), 1.0)


def assert_zero(values: Tensor) -> None:
    assert (values.view(torch.int32) == 0).all()  # +0


def assert_same(one: Tensor, other: Tensor) -> None:
    assert torch.equal(one.nan_to_num(3.0), other.nan_to_num(3.0))


cases = st.lists(
    st.tuples(
        st.integers(0, 99),
        st.sampled_from([0.0, 0.05, 0.12, 0.5, 0.95, 1.0]),
        st.booleans(),
        st.sampled_from(FORMATS),
    ),
    min_size=1,
    max_size=4,
)


@needs_kernels
@given(cases=cases, orders=st.tuples(*[st.sampled_from((None, *FORMATS))] * 4), zero=st.booleans())
@torch.no_grad()
def test_in_place_as_by_torch(cases: Any, orders: Any, zero: bool) -> None:
    layers, by_torch = [make(*case) for case in cases], [make(*case) for case in cases]
    compiled = CompiledLayers(layers)
    gradients, expected = (
        [order and gradient_of(layer, order) for layer, order in zip(each, orders, strict=False)]
        for each in (layers, by_torch)
    )
    compiled.to_q(gradients, zero=zero)
    for layer, gradient in zip(by_torch, expected, strict=True):
        layer.divide_(layer.param)
        if gradient is not None:
            layer.multiply_(gradient, zero=zero)
    for layer, other in zip(layers, by_torch, strict=True):
        assert_same(layer.param[layer.kept], other.param[layer.kept])
        some_step(layer.param)
        some_step(other.param)
        other.multiply_(other.param)
    compiled.to_theta()
    for layer, other, found, gradient in zip(layers, by_torch, gradients, expected, strict=True):
        assert torch.equal(layer.param, other.param)
        assert_zero(layer.param[~layer.kept])
        if found is not None and gradient is not None:
            assert_same(found[layer.kept], gradient[layer.kept])
            if zero:
                assert_zero(found[~layer.kept])


@needs_kernels
@given(cases=cases)
@torch.no_grad()
def test_as_one_row_as_by_torch(cases: Any) -> None:
    layers = [make(*case) for case in cases]
    thetas, compiled = [layer.param.clone() for layer in layers], CompiledLayers(layers)
    gradients = [gradient_of(layer, case[3]) for layer, case in zip(layers, cases, strict=True)]
    before = copy.deepcopy(gradients)
    q = torch.full([sum(layer.param.numel() for layer in layers)], torch.nan)
    of_q = torch.full_like(q, torch.nan)
    compiled.bundle(gradients, q, of_q)
    at = 0
    for layer, theta, gradient in zip(layers, thetas, before, strict=True):
        here = slice(at, at := at + theta.numel())
        form = layer.omega.shape, layer.omega.stride(), here.start
        assert_same(layer.param, theta)
        layer.multiply_(gradient)
        assert_same(of_q.as_strided(*form), gradient)
        layer.divide_(theta)
        assert torch.equal(q.as_strided(*form), theta)
    some_step(q)
    compiled.unbundle(q)
    for layer, theta in zip(layers, thetas, strict=True):
        some_step(theta)
        layer.multiply_(theta)
        assert torch.equal(layer.param, theta)
        assert_zero(layer.param[~layer.kept])


@needs_kernels
def test_floats_on_the_cpu_take_the_compiled_pass() -> None:
    for order in FORMATS:
        for density in (0.05, 0.5, 1.0):
            assert takes(make(0, density, True, order))
    double = make(0, 0.5, True, torch.contiguous_format)
    double.omega, double.param.data = double.omega.double(), double.param.data.double()
    assert not takes(double)


# ---------------------------------------------------------------------- in a step


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many layers each compiled pass took."""
    found: list[int] = []
    to_q = CompiledLayers.to_q

    def noted(self: CompiledLayers, *args: Any, **options: Any) -> None:
        found.extend([len(self.layers)] if self.layers else [])
        to_q(self, *args, **options)

    monkeypatch.setattr(CompiledLayers, "to_q", noted)
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
def test_steps_are_those_of_torch(passes: list[int]) -> None:
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


def test_gradients_in_another_order_are_left_to_torch() -> None:
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
