"""The method's home ground: a sparse vector behind fewer equations than unknowns.

The AST iteration with lam = 0 and q solved from 0 is theta ← omega ⊙ pinv(matrix ⊙ omega)·target:
of all q that fit, the one of least norm, which is where gradient descent from 0 would end.
"""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from asterism import AffineScaling, AllLayers, Exact, GeometricTau, Greedy
from asterism.scaling.initialisers import Initialiser
from asterism.scaling.penalties import Concave, Focuss, Penalty, ReweightedL1, ReweightedL2

EQUATIONS, UNKNOWNS, PLANTED = 25, 50, 3
NAMED: list[Penalty] = [
    ReweightedL1(tau=1.0),
    ReweightedL2(tau=1.0),
    Focuss(0.5, tau=1.0),
    Focuss(0.5, tau=1.0, classical=True),
]


@dataclass(frozen=True)
class Problem:
    matrix: Tensor
    planted: Tensor

    @property
    def target(self) -> Tensor:
        return self.matrix @ self.planted

    @property
    def least_norm(self) -> Tensor:
        return torch.linalg.pinv(self.matrix) @ self.target

    def error(self, theta: Tensor) -> float:
        return ((theta - self.planted).norm() / self.planted.norm()).item()

    def support_found(self, theta: Tensor) -> bool:
        """Whether every planted entry stands out clearly from all the others."""
        there = self.planted != 0
        return bool(theta[there].abs().min() > 3 * theta[~there].abs().max())


def plant(seed: int) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(EQUATIONS, UNKNOWNS, generator=generator, dtype=torch.float64)
    planted = torch.zeros(UNKNOWNS, dtype=torch.float64)
    where = torch.randperm(UNKNOWNS, generator=generator)[:PLANTED]
    sizes = 0.5 + torch.rand(PLANTED, generator=generator, dtype=torch.float64)
    signs = torch.randn(PLANTED, generator=generator, dtype=torch.float64).sign()
    planted[where] = sizes * signs
    return Problem(matrix / EQUATIONS**0.5, planted)


def affine_scaling(problem: Problem, penalty: Penalty, iterations: int = 20) -> Tensor:
    theta, anneal = problem.least_norm, GeometricTau(0.1)
    scale = theta.square().mean().sqrt()
    for _ in range(iterations):
        omega = penalty.omega(theta.abs(), scale)
        theta = omega * (torch.linalg.pinv(problem.matrix * omega) @ problem.target)
        if hasattr(penalty, "tau"):
            tau = anneal.next(penalty.tau, change=0.0)
            penalty = replace(penalty, tau=tau)  # type: ignore[type-var]
    return theta


@pytest.mark.parametrize("seed", range(5))
def test_least_norm_alone_does_not_recover(seed: int) -> None:
    problem = plant(seed)
    constant = affine_scaling(problem, Focuss(2.0, classical=True))  # omega = 1
    torch.testing.assert_close(constant, problem.least_norm)
    assert problem.error(constant) > 0.5
    assert not problem.support_found(constant)


@pytest.mark.parametrize("penalty", NAMED, ids=repr)
@pytest.mark.parametrize("seed", range(5))
def test_each_penalty_recovers_the_planted_vector(penalty: Penalty, seed: int) -> None:
    problem = plant(seed)
    assert problem.error(affine_scaling(problem, penalty)) < 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_a_penalty_of_ones_own_recovers_the_support(seed: int) -> None:
    problem, smooth = plant(seed), Concave(lambda z: torch.log(z * z + 0.01), order=2)
    theta = affine_scaling(problem, smooth)
    assert problem.support_found(theta)
    assert problem.error(theta) < 0.01


def descend(problem: Problem, penalty: Penalty, initialiser: Initialiser, **options: Any) -> Tensor:
    """Algorithm 1 by gradient descent on a linear layer that starts at the least-norm solution."""
    model = nn.Linear(UNKNOWNS, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(problem.least_norm[None])
    optimizer = AffineScaling(
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        model,
        penalty,
        initialiser=initialiser,
        layers=AllLayers(),
        anneal=GeometricTau(0.3, floor=1e-6),
        **options,
    )
    for _ in range(8):
        optimizer.reweight()
        for _ in range(150):
            optimizer.zero_grad()
            misfit = model(problem.matrix).flatten() - problem.target
            (misfit.square().sum() / 2).backward()
            optimizer.step()
    return optimizer.weights()["weight"].detach()[0]


@pytest.mark.parametrize("penalty", NAMED, ids=repr)
@pytest.mark.parametrize("seed", range(2))
def test_gradient_descent_with_the_greedy_start_recovers(penalty: Penalty, seed: int) -> None:
    problem = plant(seed)
    theta = descend(problem, penalty, Greedy())
    assert problem.support_found(theta)
    assert problem.error(theta) < 0.15


def test_gradient_descent_with_the_exact_start_recovers_if_lam_is_positive() -> None:
    problem = plant(0)
    theta = descend(problem, ReweightedL1(tau=1.0), Exact(), lam=0.01)
    assert problem.support_found(theta)
    assert problem.error(theta) < 0.05


def test_the_exact_start_alone_is_stationary_already() -> None:
    """The paper's reason for the other two initialisers."""
    problem = plant(0)
    theta = descend(problem, ReweightedL1(tau=1.0), Exact())
    torch.testing.assert_close(theta, problem.least_norm)
