"""A step of many layers as one is the step of each, bit by bit, by every elementwise optimizer."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from asterism import AffineScaling, InTurn, Masked, ProximalReweighting, ReweightedL1, ReweightedL2
from asterism.kernels import library
from asterism.scaling.stepping import bundles
from asterism.scaling.stepping.bundles import Bundle
from asterism.scaling.stepping.q_space import is_in_q_space
from support.explicit import ALL_ELEMENTWISE, assert_equal, assert_same_state, wrap

pytestmark = pytest.mark.skipif(library.load() is None, reason="no compiled kernels")
adamw = partial(torch.optim.AdamW, lr=0.01)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The bundles that took a step, from here on from two layers on."""
    found: list[list[str]] = []
    step = Bundle.step

    def noted(self: Bundle, regularise: Any) -> None:
        found.append([layer.name for layer in self.layers])
        step(self, regularise)

    monkeypatch.setattr(Bundle, "step", noted)
    monkeypatch.setattr(bundles, "FEW", 2)
    return found


def make_net() -> nn.Sequential:
    """Layers of odd sizes, one of them in another order of memory."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Tanh(), nn.Linear(144, 7), nn.Tanh()),
        *(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3, bias=False)),
    ).to(memory_format=torch.channels_last)


def loss(model: nn.Module, step: int) -> Tensor:
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step))
    return model(x.to(memory_format=torch.channels_last)).square().mean()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        loss(model, step).backward()
        optimizer.step()


def twice(
    run: Callable[[nn.Sequential], Any], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[nn.Sequential, Any]]:
    """The same with bundles and without."""
    done = [(model := make_net(), run(model))]
    monkeypatch.setattr(bundles, "FEW", 1000)
    return [*done, (model := make_net(), run(model))]


FORMS: dict[str, tuple[dict[str, Any], float | None]] = {
    "lam 0": ({}, None),
    "order 1": ({"lam": 0.05}, None),
    "order 2": ({"lam": lambda step: 0.01 * step, "penalty": ReweightedL2(0.3)}, None),
    "two orders": ({"lam": 0.05, "penalty": {"0.*": ReweightedL1(), "*": ReweightedL2()}}, None),
    "proximal": ({"algorithm": ProximalReweighting, "lam": 0.05}, None),
    "pruned": ({"lam": 0.05}, 0.5),
    "few left": ({"lam": 0.05}, 0.05),
}


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        *((kind, "order 1") for kind in ALL_ELEMENTWISE),
        *(
            (kind, form)
            for kind in ("AdamW", "SGD momentum")
            for form in FORMS
            if form != "order 1"
        ),
    ],
)
def test_a_bundle_takes_the_steps_of_its_layers(
    kind: str, form: str, taken: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    options, density = FORMS[form]

    def run(model: nn.Sequential) -> Any:
        optimizer = wrap(model, ALL_ELEMENTWISE[kind](model.parameters()), **options)
        optimizer.reweight()
        train(model, optimizer, range(4))
        optimizer.reweight()
        if density is not None:
            optimizer.prune(density=density, per_layer=True)
        train(model, optimizer, range(4, 7))
        optimizer.flatten()
        train(model, optimizer, range(7, 10))
        return optimizer

    (model, optimizer), (other, reference) = twice(run, monkeypatch)
    assert {*taken[-1]} == {*optimizer.weights()} - ({"0.weight"} if "two" in form else {*()})
    if "fused" in kind:  # which rounds the last few numbers of a tensor in another way
        for one, another in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one, another)
        return
    assert_equal(model, other)
    states = optimizer.state_dict(), reference.state_dict()
    if density is None:
        assert_same_state(*states)  # where a weight is pruned the inner state may be anything
    for name, mask in optimizer.masks().items():
        assert torch.equal(mask, reference.masks()[name])


def test_plain_training_of_a_sparse_network(
    taken: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(model: nn.Sequential) -> None:
        optimizer = Masked(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model)
        train(model, optimizer, range(2))
        optimizer.prune(density=0.3)
        train(model, optimizer, range(2, 5))

    (model, _), (other, _) = twice(run, monkeypatch)
    assert_equal(model, other)
    assert taken


def test_each_group_has_its_own_settings(
    taken: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(model: nn.Sequential) -> None:
        groups = [{"params": model[:4].parameters()}, {"params": model[4:].parameters(), "lr": 0.1}]
        optimizer = wrap(model, adamw(groups), lam=0.05)
        optimizer.reweight()
        train(model, optimizer, range(3))
        optimizer.param_groups[0]["lr"] = 0.05
        train(model, optimizer, range(3, 5))

    (model, _), (other, _) = twice(run, monkeypatch)
    assert_equal(model, other)
    assert taken[-2:] == [["0.weight", "3.weight"], ["5.weight", "7.weight"]]


def test_states_that_have_counted_other_steps_stay_apart(
    taken: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer that is re-weighted in its turn starts anew, the others go on."""

    def run(model: nn.Sequential) -> Any:
        optimizer = wrap(model, adamw(model.parameters()), layers=InTurn(("0.*", "3.*")))
        for step in range(6):
            if step % 3 == 0:
                optimizer.reweight()
            train(model, optimizer, range(step, step + 1))
        return optimizer

    (model, optimizer), (other, reference) = twice(run, monkeypatch)
    assert_equal(model, other)
    assert_same_state(optimizer.state_dict(), reference.state_dict())
    assert taken[-1] == ["0.weight", "5.weight", "7.weight"]


def test_gradients_stay_those_of_theta(taken: list[list[str]]) -> None:
    model = make_net()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.05))
    optimizer.reweight()
    loss(model, 0).backward()
    before = [param.grad.clone() for param in model.parameters() if param.grad is not None]
    optimizer.step()
    assert taken
    for param, gradient in zip(model.parameters(), before, strict=True):
        assert param.grad is not None
        assert torch.equal(param.grad, gradient)
        assert not is_in_q_space(param.grad)


def test_a_gradient_of_q_is_not_taken_for_one_of_theta(
    taken: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step makes the inner state, layer by layer, and leaves gradients of q."""

    def run(model: nn.Sequential) -> None:
        optimizer = wrap(model, adamw(model.parameters()))
        optimizer.reweight()
        loss(model, 0).backward()
        optimizer.step()
        optimizer.step()

    (model, _), (other, _) = twice(run, monkeypatch)
    assert_equal(model, other)
    assert not taken


@pytest.mark.parametrize("what", ["hook", "closure", "strange", "moved", "turned", "frozen"])
def test_what_does_not_fit_is_left_out(
    what: str, taken: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(model: nn.Sequential) -> None:
        kind = type("Strange", (torch.optim.AdamW,), {}) if what == "strange" else torch.optim.AdamW
        adam = kind(model.parameters(), lr=0.01)
        optimizer = wrap(model, adam)
        optimizer.reweight()
        if what == "hook":
            adam.register_step_pre_hook(lambda *_: None)
        for step in range(4):
            optimizer.zero_grad()
            loss(model, step).backward()
            if what == "moved":  # to where it is not contiguous any more
                model[3].weight.data = model[3].weight.data.t().contiguous().t()
            if what == "turned":
                model[3].weight.grad = model[3].weight.grad.t().contiguous().t()
            if what == "frozen" and step % 2:
                model[3].weight.grad = None
            optimizer.step(*([partial(loss, model, step)] if what == "closure" else []))

    (model, _), (other, _) = twice(run, monkeypatch)
    for one, another in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, another)
    assert [names for names in taken if "3.weight" in names] == []


def test_momentum_that_begins_later_is_kept(
    taken: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(model: nn.Sequential) -> None:
        optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.05))
        optimizer.reweight()
        train(model, optimizer, range(2))
        optimizer.param_groups[0]["momentum"] = 0.9
        train(model, optimizer, range(2, 6))

    (model, _), (other, _) = twice(run, monkeypatch)
    assert_equal(model, other)
    assert taken


def test_a_copy_and_a_saved_state_go_on_by_themselves(taken: list[list[str]]) -> None:
    model = make_net()
    optimizer = wrap(model, adamw(model.parameters()), lam=0.01)
    optimizer.reweight()
    train(model, optimizer, range(4))
    copied, twin = copy.deepcopy((model, optimizer))
    file = io.BytesIO()
    torch.save((model.state_dict(), optimizer.state_dict()), file)
    file.seek(0)
    weights, state = torch.load(file)
    loaded = make_net()
    loaded.load_state_dict(weights)
    again = wrap(loaded, adamw(loaded.parameters()), lam=0.01)
    again.load_state_dict(state)
    before = copy.deepcopy(model)
    train(copied, twin, range(4, 7))
    train(loaded, again, range(4, 7))
    assert_equal(model, before)
    train(model, optimizer, range(4, 7))
    assert_equal(copied, model)
    assert_equal(loaded, model)
    assert len(taken) == 3 * 4


def test_more_weights_than_a_bundle_holds(
    taken: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "SIZE", 2000)

    def run(model: nn.Sequential) -> None:
        optimizer = wrap(model, adamw(model.parameters()), lam=0.01)
        optimizer.reweight()
        train(model, optimizer, range(4))

    def make_deep() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 9), *(nn.Linear(9, 9) for _ in range(9)))

    models = [make_deep(), make_deep()]
    run(models[0])
    assert [len(names) for names in taken[-2:]] == [5, 5]
    monkeypatch.setattr(bundles, "FEW", 1000)
    run(models[1])
    assert_equal(*models)


def test_few_layers_take_their_own_steps() -> None:
    model = make_net()
    optimizer = AffineScaling(adamw(model.parameters()), model, ReweightedL1())
    train(model, optimizer, range(2))
    assert len(optimizer.weights()) < bundles.FEW
    state = optimizer.state[model[3].weight]["exp_avg"]
    assert state.untyped_storage().nbytes() == state.nbytes
