"""What may be wrapped, and how the wrapped optimizer's state follows a change of q-space."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from asterism import AffineScaling, Exact, HardThreshold, InputError, ReweightedL1, Splicing
from asterism.scaling.stepping import inner_optimizer as inner
from support.explicit import ELEMENTWISE, MakeOptimizer, loss, make_model, train, wrap


class AdamWScheduleFree(torch.optim.AdamW):
    """Stands for the one in the schedulefree package, which is not installed here."""


def test_what_keeps_weights_of_its_own_is_refused() -> None:
    model = make_model()
    with pytest.raises(InputError, match="cannot wrap AdamWScheduleFree: use an ordinary AdamW"):
        wrap(model, AdamWScheduleFree(model.parameters()))
    with pytest.raises(InputError, match="cannot wrap AffineScaling: it is wrapped already"):
        wrap(model, wrap(model))
    with pytest.raises(InputError, match="expected a torch optimizer, found list"):
        AffineScaling([], model, ReweightedL1())  # type: ignore[arg-type]


class LinearModel:
    """loss = Σ c·theta with fixed c: gradients do not depend on where theta is.

    Then the state after a re-weighting must be the one that the new q-space would have built up
    from the first step.
    """

    def __init__(self, make: MakeOptimizer) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(5, 4, bias=False).double()
        self.slopes = torch.randn(30, 4, 5, dtype=torch.float64)
        self.make = make

    def gradients(self, optimizer: Optimizer, param: nn.Parameter, omega: Any, count: int) -> None:
        for slope in self.slopes[:count]:
            param.grad = slope * omega
            optimizer.step()


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(partial(torch.optim.SGD, lr=0.1, momentum=0.9), id="SGD"),
        pytest.param(ELEMENTWISE["AdamW"], id="AdamW"),
        pytest.param(ELEMENTWISE["Adam amsgrad"], id="Adam amsgrad"),
        pytest.param(ELEMENTWISE["RMSprop"], id="RMSprop"),
        pytest.param(partial(torch.optim.Adagrad, lr=0.1), id="Adagrad"),
        pytest.param(torch.optim.NAdam, id="NAdam"),
        pytest.param(torch.optim.RAdam, id="RAdam"),
    ],
)
def test_rescaled_state_is_that_of_the_new_q_space(make: MakeOptimizer) -> None:
    problem = LinearModel(make)
    model = problem.model
    optimizer = wrap(model, make(model.parameters()), initialiser=Exact(), on_reweight="rescale")
    problem.gradients(optimizer, model.weight, 1.0, 6)
    optimizer.reweight()
    omega = optimizer.state_dict()["state"][0]["asterism_omega"]

    q = nn.Parameter(torch.zeros_like(omega))
    fresh = make([q])
    problem.gradients(fresh, q, omega, 6)
    for key, value in fresh.state[q].items():
        found = optimizer.state[model.weight][key]
        # An epsilon is added to gradients in the unit of q-space, where it has no counterpart.
        torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-9, msg=key)


@pytest.mark.parametrize("kind", [torch.optim.Adadelta, torch.optim.Rprop, torch.optim.Adafactor])
def test_state_that_cannot_be_rescaled_is_refused_before_anything_changes(kind: Any) -> None:
    model = make_model()
    optimizer = wrap(model, kind(model.parameters(), lr=0.01), on_reweight="rescale")
    train(model, optimizer, range(2))
    before = model.fc1.weight.detach().clone()
    with pytest.raises(InputError, match=f"{kind.__name__} keeps .*use on_reweight='reset'"):
        optimizer.reweight()
    assert torch.equal(model.fc1.weight, before)
    assert optimizer.iteration == 0


def test_rescaling_leaves_no_state_where_omega_is_zero() -> None:
    param = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([param], lr=0.1, momentum=0.9)
    param.grad = torch.ones(4)
    optimizer.step()
    before, now = torch.tensor([1.0, 0.0, 2.0, 1.0]), torch.tensor([3.0, 0.0, 1.0, 0.0])
    inner.rescale(optimizer, param, before, now)
    assert optimizer.state[param]["momentum_buffer"].tolist() == [3.0, 0.0, 0.5, 0.0]


def test_any_optimizer_goes_on_after_a_reset() -> None:
    """State of any shape, known or not, is built anew."""
    for kind in (torch.optim.Adafactor, torch.optim.ASGD, torch.optim.Rprop):
        model = make_model()
        optimizer = wrap(model, kind(model.parameters(), lr=0.01))
        for t in range(3):
            optimizer.reweight()
            train(model, optimizer, range(2 * t, 2 * t + 2))
        optimizer.prune(density=0.5)
        train(model, optimizer, range(2))
        assert float(optimizer.state[model.fc1.weight]["step"]) == 4
        assert all(param.isfinite().all() for param in model.parameters())


def test_only_a_step_that_cannot_move_anything_is_a_rehearsal() -> None:
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    assert inner.is_rehearsal(optimizer)
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    assert inner.is_rehearsal(optimizer)
    optimizer.param_groups[0]["lr"] = torch.tensor(0.0)
    assert inner.is_rehearsal(optimizer)
    optimizer.param_groups[0]["lr"] = 0.1
    assert not inner.is_rehearsal(optimizer)
    optimizer.param_groups[0]["lr"] = 0.0
    loss(model, 0).backward()
    assert not inner.is_rehearsal(optimizer)


def test_what_has_no_scale_needs_no_rescaling() -> None:
    """Flattened again, or with straight-through gradients, any optimizer will do."""
    for latent in (False, True):
        model = make_model()
        adadelta = torch.optim.Adadelta(model.parameters())
        affine = {"penalty": ReweightedL1(), "on_reweight": "rescale"}
        splicing = {"penalty": HardThreshold(0.5), "algorithm": Splicing}
        optimizer = wrap(model, adadelta, **(splicing if latent else affine))
        train(model, optimizer, range(2))
        if latent:
            optimizer.reweight()
        optimizer.flatten()
        train(model, optimizer, range(2, 4))
        assert float(optimizer.state[model.fc1.weight]["step"]) == 4


def test_a_penalty_needs_a_learning_rate() -> None:
    class Fixed(torch.optim.Optimizer):
        def step(self, closure=None):
            return None

    model = nn.Linear(3, 2)
    optimizer = AffineScaling(Fixed(model.parameters(), {}), model, ReweightedL1(), lam=0.1)
    model(torch.ones(1, 3)).sum().backward()
    with pytest.raises(InputError, match="lam > 0 needs a learning rate, and Fixed has none"):
        optimizer.step()
