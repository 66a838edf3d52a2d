"""A step in blocks is the step of the whole layer, bit by bit, with every elementwise optimizer."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from asterism import (
    AffineScaling,
    Concave,
    Focuss,
    GeometricTau,
    Greedy,
    Group,
    HardThreshold,
    InputError,
    ReweightedL1,
    ReweightedL2,
)
from asterism.scaling.affine_scaling import reweight
from asterism.scaling.layer import Layer
from asterism.scaling.stepping import blocks
from asterism.scaling.stepping.blocks import Blocks, reweight_in_blocks
from asterism.scaling.stepping.inner_optimizer import ELEMENTWISE as KINDS
from support.explicit import (
    ALL_ELEMENTWISE,
    assert_equal,
    assert_same_state,
    loss,
    make_model,
    train,
    wrap,
)

every_optimizer = pytest.mark.parametrize("make", ALL_ELEMENTWISE.values(), ids=ALL_ELEMENTWISE)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The layers that were taken in blocks, of eight weights each, from here on."""
    names: list[str] = []
    step = Blocks._step

    def noted(self: Blocks, layer: Any, regularise: Any) -> None:
        names.append(layer.name)
        step(self, layer, regularise)

    monkeypatch.setattr(Blocks, "_step", noted)
    monkeypatch.setattr(blocks, "SIZE", 8)
    monkeypatch.setattr(blocks, "LARGE", 1)
    return names


def in_blocks_and_whole(make: Any, **options: Any) -> list[tuple[nn.Module, AffineScaling]]:
    """The same training twice; the second time no layer counts as large."""
    trained = []
    for whole in (False, True):
        model = make_model(torch.float32)
        optimizer = wrap(model, make(model.parameters()), **options)
        if whole:
            optimizer._large = []
        optimizer.reweight()
        train(model, optimizer, range(4))
        optimizer.reweight()
        train(model, optimizer, range(4, 7))
        trained.append((model, optimizer))
    return trained


def test_all_elementwise_optimizers_are_tried() -> None:
    assert {type(make([nn.Parameter(torch.ones(1))])) for make in ALL_ELEMENTWISE.values()} == {
        *KINDS
    }


@every_optimizer
@pytest.mark.parametrize(
    "options",
    [{}, {"lam": 0.05}, {"lam": lambda step: 0.01 * step, "penalty": ReweightedL2(0.3)}],
    ids=["lam 0", "order 1", "order 2"],
)
def test_blocks_take_the_step_of_the_whole_layer(
    make: Any, options: dict[str, Any], taken: list[str]
) -> None:
    (model, optimizer), (other, reference) = in_blocks_and_whole(make, **options)
    assert {"fc1.weight", "fc2.weight"} == {*taken}
    assert_equal(model, other)
    assert_same_state(optimizer.state_dict(), reference.state_dict())
    for one, another in zip(model.parameters(), other.parameters(), strict=True):
        assert one.grad is not None
        assert another.grad is not None


# ---------------------------------------------------------------------- re-weighting


PENALTIES = [
    ReweightedL1(0.3),
    ReweightedL2(0.1, relative=False),
    Focuss(),
    Concave(lambda z: torch.log(z + 0.5)),
]


def reweighted(large: int, penalty: Any, dtype: torch.dtype, normalise: bool) -> list[Layer]:
    """Layers in two orders of memory, re-weighted twice."""
    blocks.LARGE = large
    layers = []
    for order in (torch.contiguous_format, torch.channels_last):
        weight = torch.randn(3, 5, 2, 7, generator=torch.Generator().manual_seed(0))
        weight = weight.to(dtype).contiguous(memory_format=order)
        layer = Layer("w", nn.Parameter(weight), penalty, 0.9, torch.ones_like(weight))
        for _ in range(2):
            reweight(layer, Greedy(), GeometricTau(), normalise, "")
        layers.append(layer)
    return layers


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float", "double"])
@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda penalty: type(penalty).__name__)
@torch.no_grad()
def test_a_reweighting_in_blocks_is_that_of_the_layer(
    penalty: Any, dtype: torch.dtype, normalise: bool, taken: list[str]
) -> None:
    found, expected = (reweighted(n, penalty, dtype, normalise) for n in (1, 1000))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.param, other.param)
        torch.testing.assert_close(one.omega, other.omega)
        assert one.tau == other.tau
        assert one.scaled is True is other.scaled
        assert not one.pruned


class Storages(TorchDispatchMode):
    """The sizes of the memory that torch uses inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [each for each in tree_leaves(result) if isinstance(each, Tensor)]
        self.bytes |= {each.untyped_storage().nbytes() for each in tensors}
        return result


@torch.no_grad()
def test_a_reweighting_in_blocks_makes_no_tensor_of_the_layers_size() -> None:
    size = 2**21
    weight, omega = torch.randn(size + 8)[:size], torch.ones(size + 8)[:size]
    layer = Layer("w", nn.Parameter(weight), ReweightedL1(), 1.0, omega)
    with Storages() as used:
        assert reweight_in_blocks(layer, normalise=True)
    others = used.bytes - {4 * (size + 8)}
    assert max(others) <= 4 * blocks.SIZE * min(torch.get_num_threads(), blocks.MOST_THREADS)


@pytest.mark.parametrize("what", ["small", "zeros", "pruned", "group", "overflow"])
@torch.no_grad()
def test_a_reweighting_that_blocks_do_not_take_changes_nothing(
    what: str, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(torch.float32)
    penalty = HardThreshold(0.5) if what == "zeros" else ReweightedL1()
    optimizer = wrap(model, penalty=Group(penalty) if what == "group" else penalty)
    if what == "pruned":
        optimizer.prune(density=0.5)
    if what == "small":
        monkeypatch.setattr(blocks, "LARGE", 1000)
    if what == "overflow":
        model.fc1.weight[0, 0] = 1e30
    before = copy.deepcopy(model)
    assert not reweight_in_blocks(optimizer._layers[0], normalise=what != "overflow")
    assert_equal(model, before)


# ---------------------------------------------------------------------- what is left alone


def test_gradients_stay_those_of_theta(taken: list[str]) -> None:
    """A second step with them is right even where omega has changed in between."""
    model = make_model(torch.float32)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.05))
    optimizer.reweight()
    loss(model, 0).backward()
    before = [param.grad.clone() for param in model.parameters() if param.grad is not None]
    optimizer.step()
    assert taken
    for param, gradient in zip(model.parameters(), before, strict=True):
        assert param.grad is not None
        assert torch.equal(param.grad, gradient)


def test_a_gradient_of_q_is_not_taken_for_one_of_theta(taken: list[str]) -> None:
    """The first step makes the inner state, in whole layers, and leaves gradients of q."""
    models = [make_model(torch.float32) for _ in range(2)]
    for model, large in zip(models, (True, False), strict=True):
        optimizer = wrap(model, torch.optim.AdamW(model.parameters(), lr=0.01))
        optimizer._large = optimizer._large if large else []
        optimizer.reweight()
        loss(model, 0).backward()
        optimizer.step()
        optimizer.step()
    assert_equal(*models)


@pytest.mark.parametrize("what", ["hook", "own step", "pruned", "group", "closure", "strange"])
def test_layers_that_cannot_be_divided_are_taken_whole(what: str, taken: list[str]) -> None:
    model = make_model(torch.float32)
    adam = torch.optim.AdamW(model.parameters(), lr=0.01)
    if what == "strange":
        adam = type("Strange", (torch.optim.AdamW,), {})(model.parameters(), lr=0.01)
    penalty = ReweightedL1(0.3)
    optimizer = wrap(model, adam, penalty=Group(penalty) if what == "group" else penalty)
    optimizer.reweight()
    if what == "hook":
        adam.register_step_pre_hook(lambda *_: None)
    if what == "own step":
        adam.step = adam.step
    if what == "pruned":
        optimizer.prune(density=0.5)
    for step in range(3):
        optimizer.zero_grad()
        loss(model, step).backward()
        optimizer.step(*([lambda step=step: loss(model, step)] if what == "closure" else []))
    assert not taken


def test_schedulers_count_one_step(taken: list[str]) -> None:
    """Without the warning that the optimizer was not called, around and inside."""
    model = make_model(torch.float32)
    adam = torch.optim.AdamW(model.parameters(), lr=0.01)
    optimizer = wrap(model, adam)
    optimizer.reweight()
    schedulers = [lr_scheduler.StepLR(each, 1, gamma=0.9) for each in (adam, optimizer)]
    for step in range(3):
        train(model, optimizer, range(step, step + 1))
        for scheduler in schedulers:
            scheduler.step()
    assert taken
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * 0.9**6)


def test_a_penalty_that_needs_another_form_is_refused_before_the_step(taken: list[str]) -> None:
    model = make_model(torch.float32)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), penalty=Focuss(), lam=0.1)
    optimizer.reweight()
    before = copy.deepcopy(model)
    with pytest.raises(InputError, match="needs ProximalReweighting"):
        train(model, optimizer, range(1))
    assert_equal(model, before)


def test_what_is_not_finite_stays_in_its_place(taken: list[str]) -> None:
    model = make_model(torch.float32)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.05))
    optimizer.reweight()
    loss(model, 0).backward()
    assert model.fc1.weight.grad is not None
    model.fc1.weight.grad[0, 0] = torch.nan
    optimizer.step()
    assert taken
    assert int(model.fc1.weight.isnan().sum()) == 1
