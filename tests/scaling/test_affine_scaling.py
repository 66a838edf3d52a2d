"""The heart: stepping in q-space is the same as training q in f(q ⊙ omega)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from asterism import (
    AffineScaling,
    Exact,
    Focuss,
    Greedy,
    InputError,
    InTurn,
    Noise,
    ReweightedL1,
    ReweightedL2,
)
from asterism.scaling.initialisers import Initialiser
from asterism.weights.noise import standard_normal
from support.explicit import (
    ELEMENTWISE,
    Explicit,
    MakeOptimizer,
    assert_same_theta,
    loss,
    make_model,
    omegas,
    train,
    train_with_closure,
    wrap,
)


def rms(tensor: Tensor) -> Tensor:
    return tensor.square().mean().sqrt()


def each_in_turn() -> list[Any]:
    return [pytest.param(make, id=name) for name, make in ELEMENTWISE.items()]


# ---------------------------------------------------------------------- equivalence


@pytest.mark.parametrize("make", each_in_turn())
def test_a_step_is_that_of_the_explicit_module(make: MakeOptimizer) -> None:
    model = make_model()
    optimizer = wrap(model, make(model.parameters()))
    optimizer.reweight()
    reference = Explicit(model, omegas(optimizer))
    plain = make(reference.parameters())
    for step in range(25):
        train(model, optimizer, range(step, step + 1))
        train(reference, plain, range(step, step + 1))
        assert_same_theta(model, reference)
    assert optimizer.steps == 25
    for param, q in zip(model.parameters(), reference.parameters(), strict=True):
        assert optimizer.state[param].keys() == plain.state[q].keys()
        for key, value in plain.state[q].items():
            torch.testing.assert_close(optimizer.state[param][key], value, msg=key)


def test_single_precision_is_as_good_as_the_explicit_module() -> None:
    model = make_model(torch.float32)
    optimizer = wrap(model, torch.optim.Adam(model.parameters(), lr=0.01))
    optimizer.reweight()
    reference = Explicit(model, omegas(optimizer))
    plain = torch.optim.Adam(reference.parameters(), lr=0.01)
    train(model, optimizer, range(50))
    train(reference, plain, range(50))
    for name, theta in reference.thetas().items():
        torch.testing.assert_close(model.get_parameter(name), theta, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs_is_that_of_the_explicit_module(line_search: str | None) -> None:
    make = partial(torch.optim.LBFGS, lr=0.5, max_iter=4, line_search_fn=line_search)
    model = make_model()
    optimizer = wrap(model, make(model.parameters()))
    optimizer.reweight()
    optimizer.prune(density=0.6)
    reference = Explicit(model, omegas(optimizer))
    plain = make(reference.parameters())
    for step in range(6):
        train_with_closure(model, optimizer, range(step, step + 1))
        train_with_closure(reference, plain, range(step, step + 1))
        assert_same_theta(model, reference, rtol=1e-7)


@pytest.mark.parametrize("make", each_in_turn())
def test_pruned_weights_do_not_disturb_the_others(make: MakeOptimizer) -> None:
    model = make_model()
    optimizer = wrap(model, make(model.parameters()))
    optimizer.reweight()
    optimizer.prune(density=0.3)
    reference = Explicit(model, omegas(optimizer))
    train(model, optimizer, range(10))
    train(reference, make(reference.parameters()), range(10))
    assert_same_theta(model, reference)


# ---------------------------------------------------------------------- re-weighting


class ByHand:
    """Algorithm 1 written out: one optimizer per parameter, a fresh one where q-space changes."""

    def __init__(self, model: nn.Module, make: MakeOptimizer, tau: float) -> None:
        self.tau, self.make = tau, make
        self.scales = {name: rms(theta.detach()) for name, theta in model.named_parameters()}
        ones = {
            name: torch.ones_like(theta, requires_grad=False)
            for name, theta in model.named_parameters()
        }
        self.module = Explicit(model, ones)
        self.optimizers = [make([q]) for q in self.module.q]

    def reweight(self, name: str, initialiser: Initialiser, t: int) -> None:
        number = self.module.names.index(name)
        q = self.module.q[number].detach()
        theta = q * self.module.omegas[name]
        omega = theta.abs() + self.tau * self.scales[name]
        if isinstance(initialiser, Greedy):
            omega = omega * theta.norm() / (q * omega).norm()
        else:
            omega = omega / rms(omega)
            q = theta / omega
            if isinstance(initialiser, Noise):
                q = q + initialiser.sigma * rms(q) * standard_normal(q, f"5/{name}/{t}")
        self.module.omegas[name] = omega
        self.module.q[number] = nn.Parameter(q)
        self.optimizers[number] = self.make([self.module.q[number]])

    def train(self, steps: range) -> None:
        for step in steps:
            self.module.zero_grad()
            loss(self.module, step).backward()
            for optimizer in self.optimizers:
                optimizer.step()


@pytest.mark.parametrize("initialiser", [Exact(), Greedy(), Noise(0.1)], ids=str)
@pytest.mark.parametrize("make", [ELEMENTWISE["SGD momentum"], ELEMENTWISE["AdamW"]])
def test_several_reweightings_follow_the_algebra(
    make: MakeOptimizer, initialiser: Initialiser
) -> None:
    model = make_model()
    reference = ByHand(model, make, tau=0.3)
    optimizer = wrap(
        model, make(model.parameters()), initialiser=initialiser, layers=InTurn(), seed=5
    )
    for t in range(1, 6):
        (name,) = optimizer.reweight()
        assert name == ("fc1.weight", "fc2.weight")[(t - 1) % 2]
        reference.reweight(name, initialiser, t)
        train(model, optimizer, range(6 * t, 6 * t + 6))
        reference.train(range(6 * t, 6 * t + 6))
        assert_same_theta(model, reference.module)
        for each, omega in omegas(optimizer).items():
            torch.testing.assert_close(omega, reference.module.omegas[each])


def test_the_exact_initialiser_does_not_move_the_network() -> None:
    for penalty in (ReweightedL1(0.1), ReweightedL2(0.1), Focuss(0.5, 0.1)):
        model = make_model()
        optimizer = wrap(model, penalty=penalty, initialiser=Exact())
        before = loss(model, 0)
        optimizer.reweight()
        torch.testing.assert_close(loss(model, 0), before, rtol=1e-12, atol=0)


def test_without_normalisation_omega_is_the_papers() -> None:
    model = make_model()
    theta = model.fc1.weight.detach().clone()
    optimizer = wrap(model, penalty=ReweightedL1(0.3, relative=False), normalise=False)
    optimizer.reweight()
    torch.testing.assert_close(omegas(optimizer)["fc1.weight"], theta.abs() + 0.3)
    torch.testing.assert_close(model.fc1.weight.detach(), theta * (theta.abs() + 0.3))


def test_reweighting_resets_the_state_of_those_layers_alone() -> None:
    model = make_model()
    optimizer = wrap(model, torch.optim.Adam(model.parameters(), lr=0.01), layers=InTurn())
    train(model, optimizer, range(4))
    optimizer.reweight()
    train(model, optimizer, range(4, 7))
    assert float(optimizer.state[model.fc1.weight]["step"]) == 3
    assert float(optimizer.state[model.fc1.bias]["step"]) == 7
    assert float(optimizer.state[model.fc2.weight]["step"]) == 7


@pytest.mark.parametrize("change", ["reweight", "prune"])
def test_lbfgs_forgets_its_history_when_omega_changes(change: str) -> None:
    """It has one for all parameters together, and keeps it with the first."""
    model = make_model()
    make = partial(torch.optim.LBFGS, lr=0.5, max_iter=4)
    optimizer = wrap(
        model, make(model.parameters()), initialiser=Exact(), on_reweight="rescale", include=["fc2"]
    )
    train_with_closure(model, optimizer, range(3))
    if change == "reweight":
        optimizer.reweight()
    else:
        optimizer.prune(density=0.5)
    reference = Explicit(model, omegas(optimizer))
    train_with_closure(model, optimizer, range(3, 5))
    train_with_closure(reference, make(reference.parameters()), range(3, 5))
    assert_same_theta(model, reference, rtol=1e-7)


def test_rescaled_state_goes_on_as_by_hand() -> None:
    model = make_model()
    make = partial(torch.optim.AdamW, lr=0.01)
    optimizer = wrap(model, make(model.parameters()), initialiser=Exact(), on_reweight="rescale")
    optimizer.reweight()
    train(model, optimizer, range(5))

    before = {name: omega.clone() for name, omega in omegas(optimizer).items()}
    saved = {
        param: {key: value.clone() for key, value in state.items()}
        for param, state in optimizer.state.items()
    }
    optimizer.reweight()
    reference = Explicit(model, omegas(optimizer))
    plain = make(reference.parameters())
    for name, q in zip(reference.names, reference.q, strict=True):
        state = saved[model.get_parameter(name)]
        ratio = reference.omegas[name] / before[name] if name in before else 1.0
        plain.state[q] = {
            "step": state["step"],
            "exp_avg": state["exp_avg"] * ratio,
            "exp_avg_sq": state["exp_avg_sq"] * ratio**2,
        }
    train(model, optimizer, range(5, 20))
    train(reference, plain, range(5, 20))
    assert_same_theta(model, reference)
    assert float(optimizer.state[model.fc1.weight]["step"]) == 20


def test_omega_tells_the_metric_of_each_layer() -> None:
    model = make_model()
    optimizer = AffineScaling(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model,
        ReweightedL1(0.5, relative=False),
        initialiser=Exact(),
        normalise=False,
    )
    before = {name: param.detach().clone() for name, param in optimizer.weights().items()}
    assert all(torch.equal(omega, torch.ones_like(omega)) for omega in optimizer.omega().values())
    (first,) = optimizer.reweight()
    for name, omega in optimizer.omega().items():
        expected = before[name].abs() + 0.5 if name == first else torch.ones_like(omega)
        torch.testing.assert_close(omega, expected)
    optimizer.prune(density=0.5)
    for name, omega in optimizer.omega().items():
        assert torch.equal(omega == 0, ~optimizer.masks()[name])


def test_omega_is_updated_in_place() -> None:
    model = make_model()
    optimizer = wrap(model)
    address = {name: omega.data_ptr() for name, omega in omegas(optimizer).items()}
    weights = {name: param.data_ptr() for name, param in model.named_parameters()}
    optimizer.reweight()
    optimizer.prune(density=0.5)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.flatten()
    assert {name: omega.data_ptr() for name, omega in omegas(optimizer).items()} == address
    assert {name: param.data_ptr() for name, param in model.named_parameters()} == weights


@pytest.mark.parametrize("state", ["reset", "rescale"])
def test_flattened_training_is_plain_training(state: Any) -> None:
    model = make_model()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.05), on_reweight=state)
    optimizer.reweight()
    train(model, optimizer, range(3))
    before = {name: theta.clone() for name, theta in model.state_dict().items()}
    optimizer.flatten()
    for name, theta in model.state_dict().items():
        assert torch.equal(theta, before[name])
    reference = Explicit(model, {})
    train(model, optimizer, range(3, 9))
    train(reference, torch.optim.SGD(reference.parameters(), lr=0.05), range(3, 9))
    for name, theta in reference.thetas().items():
        assert torch.equal(model.get_parameter(name), theta)


def test_arguments_in_another_order_are_named() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    order = r"AffineScaling\(optimizer, model, …\)"
    with pytest.raises(InputError, match=f"model must be a torch.nn.Module.*{order}"):
        AffineScaling(optimizer, ReweightedL1(), model)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a penalty such as ReweightedL1"):
        AffineScaling(optimizer, model, ReweightedL1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a penalty such as ReweightedL1"):
        AffineScaling(optimizer, model, {"*": 0.1})  # type: ignore[dict-item]


def test_a_number_without_a_name_is_refused_and_nothing_is_cut() -> None:
    model = nn.Linear(3, 2)
    optimizer = AffineScaling(torch.optim.SGD(model.parameters(), lr=0.1), model, ReweightedL1())
    with pytest.raises(InputError, match=r"write prune\(density=0.1\)"):
        optimizer.prune(0.1)
    assert int(model.weight.count_nonzero()) == 6
