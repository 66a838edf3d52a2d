"""The slow reference: a module whose parameters are q and whose forward pass is f(q ⊙ omega).

With it, the small problem that the tests of `AffineScaling` train on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import mse_loss
from torch.optim import Optimizer

from asterism import AffineScaling, AllLayers, ReweightedL1, SparseOptimizer

MakeOptimizer = Callable[..., Optimizer]

ELEMENTWISE: dict[str, MakeOptimizer] = {
    "SGD": partial(torch.optim.SGD, lr=0.05),
    "SGD momentum": partial(
        torch.optim.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "SGD dampened": partial(torch.optim.SGD, lr=0.05, momentum=0.9, dampening=0.5),
    "Adam": partial(torch.optim.Adam, lr=0.01, weight_decay=0.01),
    "Adam amsgrad": partial(torch.optim.Adam, lr=0.01, amsgrad=True),
    "AdamW": partial(torch.optim.AdamW, lr=0.01),
    "AdamW foreach": partial(torch.optim.AdamW, lr=0.01, foreach=True),
    "AdamW fused": partial(torch.optim.AdamW, lr=0.01, fused=True),
    "RMSprop": partial(torch.optim.RMSprop, lr=0.01, momentum=0.9, centered=True),
    "Adagrad": partial(torch.optim.Adagrad, lr=0.05, initial_accumulator_value=0.1),
}

ALL_ELEMENTWISE: dict[str, MakeOptimizer] = {
    **ELEMENTWISE,
    "NAdam": partial(torch.optim.NAdam, lr=0.01),
    "RAdam": partial(torch.optim.RAdam, lr=0.01),
    "Adamax": partial(torch.optim.Adamax, lr=0.01),
    "Adadelta": torch.optim.Adadelta,
    "Rprop": torch.optim.Rprop,
    "ASGD": torch.optim.ASGD,
    "SGD fused": partial(torch.optim.SGD, lr=0.05, momentum=0.9, fused=True),
}


class Explicit(nn.Module):
    """A copy of `model` that is trained through q, where theta = q ⊙ omega.

    Parameters without an omega are their own q.
    """

    def __init__(self, model: nn.Module, omegas: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.skeleton = [copy.deepcopy(model)]  # in a list, so that its parameters are not ours
        self.names = [name for name, _ in model.named_parameters()]
        self.omegas = {name: omega.clone() for name, omega in omegas.items()}
        self.q = nn.ParameterList(
            self.divide(name, theta.detach()) for name, theta in model.named_parameters()
        )

    def divide(self, name: str, theta: Tensor) -> Tensor:
        if name not in self.omegas:
            return theta.clone()
        omega = self.omegas[name]
        return torch.where(omega == 0, 0.0, theta / omega.where(omega != 0, torch.ones(())))

    def thetas(self) -> dict[str, Tensor]:
        return {
            name: q * self.omegas.get(name, torch.ones((), dtype=q.dtype))
            for name, q in zip(self.names, self.q, strict=True)
        }

    def forward(self, x: Tensor) -> Any:
        return functional_call(self.skeleton[0], self.thetas(), (x,))


def make_model(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("fc1", nn.Linear(6, 8))
    model.add_module("tanh", nn.Tanh())
    model.add_module("fc2", nn.Linear(8, 3))
    return model.to(dtype)


def wrap(
    model: nn.Module,
    optimizer: Optimizer | None = None,
    *,
    algorithm: Callable[..., Any] = AffineScaling,
    **options: Any,
) -> Any:
    """All layers re-weighted at once, unless told otherwise."""
    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    penalty = options.pop("penalty", ReweightedL1(tau=0.3))
    return algorithm(optimizer, model, penalty, **{"layers": AllLayers(), **options})


def omegas(optimizer: SparseOptimizer) -> dict[str, Tensor]:
    """By name, as a checkpoint holds them."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    number = {param: key for key, param in enumerate(params)}
    entries = optimizer.state_dict()["state"]
    return {
        name: entries[number[param]]["asterism_omega"]
        for name, param in optimizer.weights().items()
    }


def loss(model: nn.Module, step: int) -> Tensor:
    """On a batch that depends on the step alone."""
    dtype = next(model.parameters()).dtype
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(16, 6, generator=generator, dtype=dtype)
    y = torch.randn(16, 3, generator=generator, dtype=dtype)
    return mse_loss(model(x), y)


def train(model: nn.Module, optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        loss(model, step).backward()
        optimizer.step()


def train_with_closure(model: nn.Module, optimizer: Optimizer, steps: range) -> None:
    for step in steps:

        def closure(step: int = step) -> Tensor:
            optimizer.zero_grad()
            value = loss(model, step)
            value.backward()
            return value

        optimizer.step(closure)


def assert_same_theta(model: nn.Module, reference: Explicit, rtol: float = 1e-9) -> None:
    for name, theta in reference.thetas().items():
        found = model.get_parameter(name).detach()
        torch.testing.assert_close(found, theta.detach(), rtol=rtol, atol=1e-12, msg=name)


def assert_equal(model: nn.Module, other: nn.Module) -> None:
    """Bit by bit."""
    others = other.state_dict()
    for name, theta in model.state_dict().items():
        assert torch.equal(theta, others[name]), name


def assert_same_state(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Bit by bit, of state_dicts."""
    assert one["state"].keys() == other["state"].keys()
    for key, entry in one["state"].items():
        assert entry.keys() == other["state"][key].keys()
        for name, value in entry.items():
            found = other["state"][key][name]
            same = torch.equal(value, found) if isinstance(value, Tensor) else value == found
            assert same, (key, name)


def nonzeros(optimizer: SparseOptimizer) -> int:
    return sum(int((weight != 0).sum()) for weight in optimizer.weights().values())


def assert_exact_zeros(model: nn.Module, optimizer: SparseOptimizer) -> None:
    """+0, bit by bit, and nothing that is not a number anywhere."""
    for name, mask in optimizer.masks().items():
        pruned = model.get_parameter(name).detach()[~mask]
        assert (pruned.view(torch.int64) == 0).all(), name
    assert all(param.isfinite().all() for param in model.parameters())
