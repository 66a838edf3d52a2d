"""What shrinks the weights: weight decay acts on q, lam takes the proximal step of the penalty."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism import (
    AffineScaling,
    Focuss,
    InputError,
    ProximalReweighting,
    ReweightedL1,
    ReweightedL2,
)
from support.explicit import (
    make_model,
    omegas,
    train,
    wrap,
)


def test_weight_decay_acts_on_q() -> None:
    """Without a gradient, coupled decay shrinks every q, and so every theta, by the same factor."""
    model = make_model()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5))
    optimizer.reweight()
    before = model.fc1.weight.detach().clone()
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    optimizer.step()
    torch.testing.assert_close(model.fc1.weight.detach(), before * (1 - 0.1 * 0.5))


def still_step(optimizer: Optimizer) -> None:
    """A step with gradients of zero: whatever moves, moves by the penalty."""
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.zeros_like(param)
    optimizer.step()


def test_the_proximal_step_of_first_order_shrinks_q() -> None:
    model = make_model()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), lam=2.0)
    optimizer.reweight()
    theta, bias = model.fc1.weight.detach().clone(), model.fc1.bias.detach().clone()
    omega = omegas(optimizer)["fc1.weight"]
    still_step(optimizer)
    q = theta / omega
    expected = q.sign() * (q.abs() - 0.1 * 2.0).clamp(min=0) * omega
    assert 0 < (expected == 0).sum() < expected.numel()
    torch.testing.assert_close(model.fc1.weight.detach(), expected)
    assert torch.equal(model.fc1.bias, bias)
    assert optimizer.masks()["fc1.weight"].all()


def test_the_proximal_step_of_second_order_divides_q() -> None:
    model = make_model()
    optimizer = wrap(
        model, torch.optim.SGD(model.parameters(), lr=0.1), penalty=ReweightedL2(0.3), lam=2.0
    )
    optimizer.reweight()
    theta = model.fc1.weight.detach().clone()
    still_step(optimizer)
    torch.testing.assert_close(model.fc1.weight.detach(), theta / (1 + 2 * 0.1 * 2.0))


def make_plain_metric(model: nn.Module, **options: Any) -> ProximalReweighting:
    return wrap(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        penalty=ReweightedL1(tau=0.3, relative=False),
        algorithm=ProximalReweighting,
        lam=0.2,
        **options,
    )


def test_with_a_plain_metric_psi_weights_the_penalty_by_the_round() -> None:
    model = make_model()
    optimizer = make_plain_metric(model, reweight_every="round")
    start = model.fc1.weight.detach().clone()
    optimizer.reweight()
    assert torch.equal(model.fc1.weight, start)
    assert (omegas(optimizer)["fc1.weight"] == 1).all()
    amount = 0.1 * 0.2 * 0.3 / (start.abs() + 0.3)  # lr·lam·psi/psi(0), kept for the round
    expected = start
    for _ in range(3):
        still_step(optimizer)
        expected = expected.sign() * (expected.abs() - amount).clamp(min=0)
    torch.testing.assert_close(model.fc1.weight.detach(), expected)


def test_with_a_plain_metric_psi_can_be_renewed_at_each_step() -> None:
    model = make_model()
    optimizer = make_plain_metric(model)
    expected = model.fc1.weight.detach().clone()
    for _ in range(3):
        still_step(optimizer)
        amount = 0.1 * 0.2 * 0.3 / (expected.abs() + 0.3)
        expected = expected.sign() * (expected.abs() - amount).clamp(min=0)
    torch.testing.assert_close(model.fc1.weight.detach(), expected)


def test_a_plain_metric_trains_as_the_inner_optimizer_does() -> None:
    model, other = make_model(), make_model()
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer = wrap(model, adam, algorithm=ProximalReweighting, lam=0.0)
    optimizer.reweight()
    train(model, optimizer, range(5))
    train(other, torch.optim.Adam(other.parameters(), lr=0.01), range(5))
    for name, theta in other.state_dict().items():
        assert torch.equal(model.state_dict()[name], theta)


def test_lam_may_depend_on_the_number_of_steps() -> None:
    seen: list[int] = []

    def lam(step: int) -> float:
        seen.append(step)
        return 0.0 if step < 2 else 3.0

    model = make_model()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), lam=lam)
    start = model.fc1.weight.detach().clone()
    for _ in range(2):
        still_step(optimizer)
    assert torch.equal(model.fc1.weight, start)
    still_step(optimizer)
    expected = start.sign() * (start.abs() - 0.1 * 3.0).clamp(min=0)
    torch.testing.assert_close(model.fc1.weight.detach(), expected)
    assert seen == [0, 1, 2]


def test_the_proximal_step_uses_each_groups_learning_rate() -> None:
    model = make_model()
    groups = [
        {"params": list(model.fc1.parameters()), "lr": 0.1},
        {"params": list(model.fc2.parameters()), "lr": torch.tensor(0.02)},
    ]
    optimizer = wrap(model, torch.optim.SGD(groups, lr=1.0, foreach=False), lam=1.0)
    before = {name: theta.detach().abs().clone() for name, theta in model.named_parameters()}
    still_step(optimizer)
    for name, rate in (("fc1.weight", 0.1), ("fc2.weight", 0.02)):
        moved = before[name] - model.get_parameter(name).detach().abs()
        torch.testing.assert_close(moved, before[name].clamp(max=rate), atol=1e-9, rtol=1e-7)


def test_weights_without_a_gradient_are_left_alone() -> None:
    for with_closure in (False, True):
        model = make_model()
        optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), lam=1.0)
        before = model.fc1.weight.detach().clone()

        def closure(model: nn.Module = model) -> Tensor:
            model.zero_grad()
            value: Tensor = model.get_parameter("fc2.weight").square().sum()
            value.backward()
            return value

        if with_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
        assert torch.equal(model.fc1.weight, before)


def test_choices_that_contradict_each_other_are_refused() -> None:
    model = make_model()
    with pytest.raises(InputError, match="reweight_every is one of step, round, got 'steps'"):
        wrap(model, algorithm=ProximalReweighting, lam=0.1, reweight_every="steps")
    with pytest.raises(InputError, match="on_reweight is one of reset, rescale, got 'keep'"):
        wrap(model, on_reweight="keep")
    with pytest.raises(InputError, match="lam must be non-negative and finite, got -1"):
        wrap(model, lam=-1.0)
    with pytest.raises(InputError, match=r"a penalty such as ReweightedL1\(\) for fc1.weight"):
        wrap(model, penalty=ReweightedL1)


def test_the_printed_focuss_has_no_proximal_step_in_q_space():
    model = nn.Linear(4, 3)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = AffineScaling(sgd, model, Focuss(0.5, 0.1), lam=0.1)
    model(torch.rand(2, 4)).sum().backward()
    with pytest.raises(InputError, match="lam > 0 with Focuss.*needs ProximalReweighting"):
        optimizer.step()
