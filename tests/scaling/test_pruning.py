"""Pruned is pruned: exact zeros, exactly as many as asked for, whatever trains on top."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from asterism import (
    Exact,
    Greedy,
    HardThreshold,
    InputError,
    Noise,
    ReweightedL1,
)
from asterism.scaling.initialisers import Initialiser
from support.explicit import (
    ELEMENTWISE,
    MakeOptimizer,
    assert_exact_zeros,
    loss,
    make_model,
    nonzeros,
    omegas,
    train,
    wrap,
)

OPTIMIZERS: dict[str, MakeOptimizer] = {
    **ELEMENTWISE,
    "Adam, eps = 0": partial(torch.optim.Adam, lr=0.01, eps=0.0),  # 0 / 0 where pruned
    "Adadelta": torch.optim.Adadelta,
    "NAdam": torch.optim.NAdam,
    "Rprop": torch.optim.Rprop,
    "ASGD": torch.optim.ASGD,
}


# ---------------------------------------------------------------------- nothing comes back


@pytest.mark.parametrize("flattened", [False, True], ids=["scaled", "flattened"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pruned_weights_stay_zero_through_a_hundred_steps(name: str, flattened: bool) -> None:
    model = make_model()
    optimizer = wrap(model, OPTIMIZERS[name](model.parameters()))
    optimizer.reweight()
    train(model, optimizer, range(20))  # momentum from before the cut
    if flattened:
        optimizer.flatten()
        train(model, optimizer, range(20, 25))
    optimizer.prune(density=0.25)
    masks = {name: mask.clone() for name, mask in optimizer.masks().items()}
    for step in range(100):
        train(model, optimizer, range(step, step + 1))
        assert_exact_zeros(model, optimizer)
    for name, mask in optimizer.masks().items():
        assert torch.equal(mask, masks[name])
    assert nonzeros(optimizer) == 18


def test_pruned_weights_stay_zero_under_lbfgs() -> None:
    model = make_model()
    optimizer = wrap(model, torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe"))
    optimizer.reweight()
    seen: list[bool] = []

    def closure() -> Tensor:
        seen.extend(
            bool((model.get_parameter(name)[~mask] == 0).all())
            for name, mask in optimizer.masks().items()
        )
        optimizer.zero_grad()
        value = loss(model, 0)
        value.backward()
        return value

    optimizer.step(closure)
    optimizer.prune(density=0.25)
    for _ in range(5):
        optimizer.step(closure)
        assert_exact_zeros(model, optimizer)
    assert all(seen)
    assert len(seen) > 50


def test_no_momentum_is_left_where_a_weight_has_gone() -> None:
    model = make_model()
    optimizer = wrap(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    train(model, optimizer, range(3))
    optimizer.prune(density=0.5)
    for name, mask in optimizer.masks().items():
        state = optimizer.state[model.get_parameter(name)]
        for key in ("exp_avg", "exp_avg_sq"):
            assert (state[key][~mask] == 0).all()
            assert (state[key][mask] != 0).all()
        assert float(state["step"]) == 3


def test_weights_written_from_outside_are_cut_again() -> None:
    model = make_model()
    dense = copy.deepcopy(model.state_dict())
    optimizer = wrap(model)
    optimizer.reweight()
    optimizer.prune(density=0.5)
    model.load_state_dict(dense)
    train(model, optimizer, range(1))
    assert_exact_zeros(model, optimizer)


@pytest.mark.parametrize("initialiser", [Exact(), Greedy(), Noise(0.5)], ids=str)
def test_reweighting_brings_nothing_back(initialiser: Initialiser) -> None:
    model = make_model()
    optimizer = wrap(model, initialiser=initialiser)
    optimizer.prune(density=0.4)
    for t in range(4):
        optimizer.reweight()
        assert_exact_zeros(model, optimizer)
        train(model, optimizer, range(5 * t, 5 * t + 5))
        assert_exact_zeros(model, optimizer)
    assert nonzeros(optimizer) == 29


def test_an_infinite_gradient_does_not_reach_a_pruned_weight() -> None:
    model = make_model()
    optimizer = wrap(model)
    optimizer.reweight()
    optimizer.prune(density=0.4)
    loss(model, 0).backward()
    mask = optimizer.masks()["fc1.weight"]
    model.fc1.weight.grad[~mask] = torch.inf
    optimizer.step()
    assert_exact_zeros(model, optimizer)
    train(model, optimizer, range(3))
    assert_exact_zeros(model, optimizer)


# ---------------------------------------------------------------------- the cut


@pytest.mark.parametrize("density", [1.0, 0.5, 0.123, 2 / 72])
@pytest.mark.parametrize("score", ["lamp", "magnitude"])
def test_the_density_asked_for_is_the_density_achieved(density: float, score: str) -> None:
    model = make_model()
    nn.init.constant_(model.fc1.weight, 0.1)  # ties everywhere, one large weight in each layer
    nn.init.constant_(model.fc1.weight[4, 4], 0.9)
    nn.init.constant_(model.fc2.weight[1, 1], 0.9)
    optimizer = wrap(model)
    optimizer.prune(density=density, score=score)
    assert sum(int(mask.sum()) for mask in optimizer.masks().values()) == round(72 * density)
    assert nonzeros(optimizer) == round(72 * density)


def test_each_layer_can_have_its_own_density() -> None:
    model = make_model()
    optimizer = wrap(model)
    optimizer.prune(density={"fc1": 0.25})
    assert int((model.fc1.weight != 0).sum()) == 12
    assert (model.fc2.weight != 0).all()
    optimizer.prune(density=0.125, per_layer=True)
    assert [int((weight != 0).sum()) for weight in optimizer.weights().values()] == [6, 3]


def test_a_cut_keeps_the_largest_and_moves_nothing_else() -> None:
    model = make_model()
    before = model.fc1.weight.detach().clone()
    optimizer = wrap(model)
    optimizer.reweight()
    moved = model.fc1.weight.detach().clone()
    optimizer.prune(threshold=0.2)
    mask = optimizer.masks()["fc1.weight"]
    assert torch.equal(mask, moved.abs() > 0.2)
    assert torch.equal(model.fc1.weight[mask], moved[mask])
    assert not torch.equal(before, moved)


def test_masks_can_be_given_and_taken_from_another_run() -> None:
    model, other = make_model(), make_model()
    optimizer, donor = wrap(model), wrap(other)
    donor.prune(density=0.3)
    optimizer.prune(masks=donor.masks())
    for name, mask in donor.masks().items():
        assert torch.equal(optimizer.masks()[name], mask)
    assert_exact_zeros(model, optimizer)
    with pytest.raises(InputError, match="must be bool of shape"):
        optimizer.prune(masks={"fc1.weight": torch.ones(8, 6)})


def test_no_layer_loses_its_last_weight() -> None:
    model = make_model()
    with torch.no_grad():
        model.fc2.weight.mul_(1e-3)
    optimizer = wrap(model)
    with pytest.warns(UserWarning, match="nothing of fc2.weight"):
        optimizer.prune(density=0.25, score="magnitude")
    assert nonzeros(optimizer) == 18
    assert int((model.fc2.weight != 0).sum()) == 1
    with pytest.warns(UserWarning, match="nothing of fc1.weight"):
        optimizer.prune(threshold={"fc1": 1e6})
    assert int((model.fc1.weight != 0).sum()) == 1
    with pytest.raises(InputError, match="every layer needs at least one"):
        optimizer.prune(density=1 / 72)
    with pytest.raises(InputError, match="do not come back"):
        optimizer.prune(density=0.9)


def test_weights_that_are_not_finite_are_not_cut() -> None:
    model = make_model()
    optimizer = wrap(model)
    with torch.no_grad():
        model.fc1.weight[0, 0] = torch.nan
    with pytest.raises(InputError, match="fc1.weight holds NaN"):
        optimizer.prune(density=0.5)
    with pytest.raises(InputError, match=r"fc1.weight: omega .* has training diverged"):
        optimizer.reweight()
    assert optimizer.iteration == 0
    assert all((omega == 1).all() for omega in omegas(optimizer).values())


# ---------------------------------------------------------------------- omega near zero


@pytest.mark.parametrize("initialiser", [Exact(), Greedy(), Noise(0.1)], ids=str)
def test_an_omega_of_zero_prunes(initialiser: Initialiser) -> None:
    model = make_model()
    theta = model.fc1.weight.detach().clone()
    penalty = HardThreshold(0.2, relative=False)
    optimizer = wrap(model, penalty=penalty, initialiser=initialiser, normalise=False)
    optimizer.reweight()
    assert torch.equal(optimizer.masks()["fc1.weight"], theta.abs() >= 0.2)
    train(model, optimizer, range(10))
    assert_exact_zeros(model, optimizer)


class Steep(ReweightedL1):
    """omega = z¹⁶⁰: from 1 down to nothing, with subnormal numbers in between."""

    def omega(self, z: Tensor, scale: Any = 1.0, previous: Tensor | None = None) -> Tensor:
        return z**160


@pytest.mark.parametrize("initialiser", [Exact(), Greedy()], ids=str)
@pytest.mark.parametrize("make", [ELEMENTWISE["SGD momentum"], ELEMENTWISE["AdamW"]])
def test_an_omega_that_underflows_prunes(make: MakeOptimizer, initialiser: Initialiser) -> None:
    model = make_model()
    optimizer = wrap(
        model,
        make(model.parameters()),
        penalty={"fc1": Steep(), "fc2": ReweightedL1()},
        initialiser=initialiser,
        normalise=False,
    )
    with torch.no_grad():
        model.fc1.weight.copy_(torch.logspace(-2.2, -0.1, 48, dtype=torch.float64).view(8, 6))
    optimizer.reweight()
    omega = omegas(optimizer)["fc1.weight"]
    assert 0 < int((omega == 0).sum()) < 48
    assert (omega[omega != 0] >= torch.finfo(torch.float64).tiny).all()
    train(model, optimizer, range(10))
    assert_exact_zeros(model, optimizer)


@pytest.mark.parametrize("initialiser", [Exact(), Greedy(), Noise(0.1)], ids=str)
def test_a_reweighting_that_would_leave_nothing_is_refused(initialiser: Initialiser) -> None:
    model = make_model()
    before = copy.deepcopy(model.state_dict())
    optimizer = wrap(model, penalty=HardThreshold(1e6), initialiser=initialiser)
    with pytest.raises(InputError, match="fc1.weight: omega is 0 everywhere"):
        optimizer.reweight()
    assert all(torch.equal(theta, before[name]) for name, theta in model.state_dict().items())
    assert all(mask.all() for mask in optimizer.masks().values())


# ---------------------------------------------------------------------- starting sparse


def sparse_model() -> nn.Sequential:
    model = make_model()
    with torch.no_grad():
        model.fc1.weight[model.fc1.weight.abs() < 0.2] = 0.0
    return model


def test_zeros_in_the_model_are_alive() -> None:
    model = sparse_model()
    start = int((model.fc1.weight == 0).sum())
    assert start > 0
    optimizer = wrap(model)
    assert optimizer.masks()["fc1.weight"].all()
    train(model, optimizer, range(1))
    assert (model.fc1.weight != 0).all()


def test_frozen_zeros_stay_zero() -> None:
    model = sparse_model()
    zeros = model.fc1.weight == 0
    optimizer = wrap(model, freeze_zeros=True)
    assert torch.equal(optimizer.masks()["fc1.weight"], ~zeros)
    optimizer.reweight()
    train(model, optimizer, range(10))
    assert_exact_zeros(model, optimizer)
    optimizer.prune(density=0.3)
    assert nonzeros(optimizer) == round(72 * 0.3)


# ---------------------------------------------------------------------- some layers alone


def test_a_cut_of_some_layers_is_exact_and_leaves_the_others() -> None:
    model = make_model()
    optimizer = wrap(model)
    before = model.get_parameter("fc2.weight").detach().clone()
    optimizer.prune(density=0.25, include=["fc1"])
    assert nonzeros(optimizer) == 12 + 24
    assert torch.equal(model.get_parameter("fc2.weight"), before)
    with pytest.raises(InputError, match="no layer matches the pattern 'conv'"):
        optimizer.prune(density=0.1, include=["conv"])
