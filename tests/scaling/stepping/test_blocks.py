"""A step in blocks is the step of the whole layer, bit by bit, with every elementwise optimizer."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from asterism import AffineScaling, Focuss, Group, InputError, ReweightedL1, ReweightedL2
from asterism.scaling.stepping import blocks
from asterism.scaling.stepping.blocks import Blocks
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
