"""Latent weights, as in Dynamic Network Surgery: what is cut by mistake can return."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from asterism import (
    HardThreshold,
    InputError,
    ReweightedL1,
    Splicing,
)
from support.explicit import assert_exact_zeros, loss, make_model, nonzeros, omegas, train, wrap


def splice(model: nn.Module, **options: Any) -> Splicing:
    """As Dynamic Network Surgery: cut below 0.2, back above 0.3."""
    return wrap(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        penalty=HardThreshold(0.2, 0.3, relative=False),
        algorithm=Splicing,
        **options,
    )


def test_gradients_pass_straight_through_to_latent_weights() -> None:
    model = make_model()
    optimizer = splice(model)
    q = model.fc1.weight.detach().clone()
    optimizer.reweight()
    mask = q.abs() >= 0.2
    assert torch.equal(optimizer.masks()["fc1.weight"], mask)
    for step in range(5):
        optimizer.zero_grad()
        loss(model, step).backward()
        gradient = model.fc1.weight.grad.clone()
        assert (gradient[~mask] != 0).any()
        optimizer.step()
        q -= 0.1 * gradient
        torch.testing.assert_close(model.fc1.weight.detach(), q * mask)
        torch.testing.assert_close(model.fc1.weight.grad, gradient)


def push(model: nn.Sequential, optimizer: Splicing, amount: float) -> None:
    """One step that adds `amount` to every latent weight of fc1."""
    optimizer.zero_grad()
    model.fc1.weight.grad = torch.full_like(model.fc1.weight, -amount / 0.1)
    optimizer.step()


def test_a_pruned_weight_returns_once_its_latent_has_grown() -> None:
    model = make_model()
    with torch.no_grad():
        model.fc1.weight[0, 0] = 0.1
    optimizer = splice(model)
    optimizer.reweight()
    assert model.fc1.weight[0, 0] == 0
    push(model, optimizer, 0.15)  # 0.25: between a and b nothing changes
    optimizer.reweight()
    assert model.fc1.weight[0, 0] == 0
    push(model, optimizer, 0.1)  # 0.35, not seen before the next re-weighting
    assert model.fc1.weight[0, 0] == 0
    optimizer.reweight()
    assert model.fc1.weight[0, 0].item() == pytest.approx(0.35)
    push(model, optimizer, -0.1)  # 0.25 again: stays in
    optimizer.reweight()
    assert model.fc1.weight[0, 0].item() == pytest.approx(0.25)


def test_flattening_ends_the_splicing() -> None:
    model = make_model()
    optimizer = splice(model)
    optimizer.reweight()
    train(model, optimizer, range(3))
    with pytest.raises(InputError, match="flatten"):
        optimizer.prune(density=0.5)
    before = model.fc1.weight.detach().clone()
    optimizer.flatten()
    assert torch.equal(model.fc1.weight, before)
    assert torch.equal(optimizer.masks()["fc1.weight"], before != 0)
    for _ in range(5):
        push(model, optimizer, 1.0)
    mask = optimizer.masks()["fc1.weight"]
    torch.testing.assert_close(model.fc1.weight.detach(), (before + 5.0) * mask)
    assert_exact_zeros(model, optimizer)
    optimizer.prune(density=0.2)
    assert nonzeros(optimizer) == 14


def test_gradients_stay_straight_through_with_a_soft_omega() -> None:
    """Of any penalty, not of a threshold alone."""
    model = make_model()
    optimizer = wrap(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        penalty=ReweightedL1(0.3),
        algorithm=Splicing,
    )
    q = model.fc1.weight.detach().clone()
    optimizer.reweight()
    omega = omegas(optimizer)["fc1.weight"].clone()
    torch.testing.assert_close(model.fc1.weight.detach(), q * omega)
    loss(model, 0).backward()
    gradient = model.fc1.weight.grad.clone()
    optimizer.step()
    torch.testing.assert_close(model.fc1.weight.detach(), (q - 0.1 * gradient) * omega)
    assert torch.equal(model.fc1.weight.grad, gradient)


def test_a_layer_may_be_cut_off_for_a_while() -> None:
    """With latent weights even a layer that is cut whole can return."""
    model = make_model()
    with torch.no_grad():
        model.fc1.weight.fill_(0.1)
    optimizer = splice(model)
    optimizer.reweight()
    assert (model.fc1.weight == 0).all()
    push(model, optimizer, 0.4)
    optimizer.reweight()
    assert (model.fc1.weight == 0.5).all()


def test_a_layer_that_is_cut_whole_is_not_flattened() -> None:
    model = make_model()
    with torch.no_grad():
        model.fc1.weight.fill_(0.1)
    optimizer = splice(model)
    optimizer.reweight()
    with pytest.raises(InputError, match=r"fc1\.weight: omega is 0 everywhere"):
        optimizer.flatten()
