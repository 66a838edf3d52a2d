"""The regularised objective never increases under the exact majorise–minimise step."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from asterism.scaling.penalties import Concave, Focuss, Penalty, ReweightedL1, ReweightedL2

PENALTIES: list[Penalty] = [
    ReweightedL1(tau=0.05),
    ReweightedL2(tau=0.05),
    Focuss(0.5, tau=0.1, classical=True),
    Focuss(1.0, tau=0.01, classical=True),
    Concave(lambda z: torch.atan(3 * z)),
    Concave(lambda z: z * z / (1 + z * z), order=2),
]


def ridge_step(matrix: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """argmin ½‖matrix·theta - target‖² + Σ weights·theta², in closed form."""
    return torch.linalg.solve(matrix.T @ matrix + 2 * weights.diag(), matrix.T @ target)


def lasso_step(matrix: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """argmin ½‖matrix·theta - target‖² + Σ weights·|theta|, by coordinate descent."""
    gram, moment = (matrix.T @ matrix).tolist(), (matrix.T @ target).tolist()
    theta, levels = [0.0] * len(moment), weights.tolist()
    for _ in range(2000):
        moved = 0.0
        for j, row in enumerate(gram):
            pull = moment[j] - sum(a * b for a, b in zip(row, theta, strict=True))
            pull += row[j] * theta[j]
            size = max(abs(pull) - levels[j], 0.0) / row[j]
            moved = max(moved, abs(theta[j] - (new := size if pull > 0 else -size)))
            theta[j] = new
        if moved < 1e-13:
            break
    return torch.tensor(theta, dtype=torch.float64)


STEP: dict[int, Callable[[Tensor, Tensor, Tensor], Tensor]] = {1: lasso_step, 2: ridge_step}


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda penalty: type(penalty).__name__)
@given(seed=st.integers(0, 2**32), lam=st.floats(1e-3, 1.0))
@settings(max_examples=15)
def test_majorise_minimise_never_increases_the_objective(
    penalty: Penalty, seed: int, lam: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(10, 6, generator=generator, dtype=torch.float64)
    target = torch.randn(10, generator=generator, dtype=torch.float64)
    theta = torch.linalg.lstsq(matrix, target[:, None]).solution.flatten()
    scale = theta.square().mean().sqrt()

    def objective(theta: Tensor) -> float:
        fit = (matrix @ theta - target).square().sum() / 2
        return (fit + lam * penalty.value(theta.abs(), scale).sum()).item()

    values = [objective(theta)]
    for _ in range(6):
        theta = STEP[penalty.order](matrix, target, lam * penalty.psi(theta.abs(), scale))
        values.append(objective(theta))
    assert all(after <= before + 1e-9 for before, after in pairwise(values))
    assert values[-1] < values[0]


def test_weights_other_than_psi_can_increase_the_objective() -> None:
    """The control: omega in the place of psi shrinks what it should spare."""
    matrix, target = torch.eye(2, dtype=torch.float64), torch.tensor([1.0, 20.0]).double()
    penalty, lam = ReweightedL1(tau=0.05, relative=False), 0.1

    def rise(weights: Tensor) -> float:
        theta = lasso_step(matrix, target, lam * weights)
        fit = (theta - target).square().sum() / 2
        penalties = penalty.value(theta.abs()) - penalty.value(target)
        return (fit + lam * penalties.sum()).item()

    assert rise(penalty.psi(target)) < 0 < rise(penalty.omega(target))
