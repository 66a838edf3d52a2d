"""The algebra of groups: partitions, majorisers, the proximal step."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from asterism import Group, Heads, InputError, ReweightedL1, ReweightedL2
from asterism.scaling.group_penalty import soft_threshold
from asterism.scaling.penalties import Concave, Focuss, Penalty
from asterism.storage.config import describe
from asterism.weights.connections import locate
from asterism.weights.partition import Partition, make_partition

PENALTIES: list[Penalty] = [
    ReweightedL1(tau=0.05),
    ReweightedL2(tau=0.05),
    Focuss(0.5, tau=0.1, classical=True),
    Concave(lambda z: torch.atan(3 * z)),
    Concave(lambda z: z * z / (1 + z * z), order=2),
]
seeds = st.integers(0, 2**32)


def normal(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def split(seed: int, size: int, count: int) -> Partition:
    """Random groups of a vector, of unequal sizes."""
    index = torch.randint(count, (size,), generator=torch.Generator().manual_seed(seed))
    return make_partition(index, torch.Size([size]), "w")


def magnitudes(theta: Tensor, groups: Partition) -> Tensor:
    return groups.magnitudes(groups.reduce(theta.square()))


# ---------------------------------------------------------------------- partitions


@pytest.mark.parametrize("size", [(4, 1, 1), (1, 3, 1), (4, 3, 1), (4, 3, 2), (2,), (3, 1)])
@given(seed=seeds)
@settings(max_examples=10)
def test_a_partition_sums_as_a_loop_does(size: tuple[int, ...], seed: int) -> None:
    theta, generator = normal(seed, 4, 3, 2), torch.Generator().manual_seed(seed)
    index = torch.randint(-2, 3, size, generator=generator)
    groups = make_partition(index, theta.shape, "w")
    members = [index.expand(theta.shape) == number for number in index.unique()]
    assert groups.sizes.tolist() == [int(member.sum()) for member in members]
    expected = torch.stack([theta[member].sum() for member in members])
    torch.testing.assert_close(groups.sums(theta), expected)
    rms = torch.stack([theta[member].square().mean().sqrt() for member in members])
    torch.testing.assert_close(magnitudes(theta, groups), rms)
    whole = groups.spread(rms).expand(theta.shape)
    for member, value in zip(members, rms, strict=True):
        assert (whole[member] == value).all()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (torch.rand(4, 1), "must be a tensor of integers"),
        (torch.ones(4, 1, dtype=torch.bool), "must be a tensor of integers"),
        ([0, 1, 2, 3], "must be a tensor of integers"),
        (torch.arange(4), r"broadcast to its shape \(4, 3\), found shape \(4,\)"),
        (torch.zeros(1, 4, 3, dtype=torch.int64), r"found shape \(1, 4, 3\)"),
    ],
)
def test_groups_that_do_not_fit_the_weight_are_refused(index: Tensor, message: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4))
    with pytest.raises(InputError, match=f"the groups of 0.weight {message}|{message}"):
        Group(ReweightedL1(), by=lambda shape: index).partition(locate(model, "0.weight"))


def test_units_by_name_and_by_function_agree() -> None:
    weight = locate(nn.Sequential(nn.Conv2d(3, 4, 2)), "0.weight")
    named = Group(ReweightedL1(), by="filter").partition(weight)
    given_ = Group(ReweightedL1(), by=lambda shape: torch.arange(4).view(4, 1, 1, 1))
    assert torch.equal(given_.partition(weight).index, named.index)
    assert named.sizes.tolist() == [12] * 4
    assert Group(ReweightedL1(), by="channel").partition(weight).sizes.tolist() == [16] * 3


def test_a_group_is_a_penalty_of_the_groups_magnitude() -> None:
    single, group = ReweightedL2(tau=0.3), Group(ReweightedL2(tau=0.3), by=Heads(2))
    z = torch.tensor([0.0, 0.5, 2.0])
    for what in ("value", "psi", "omega", "relative_psi"):
        assert torch.equal(getattr(group, what)(z, 0.7), getattr(single, what)(z, 0.7))
    assert (group.order, group.relative, group.plain_in_q) == (2, True, True)
    assert not Group(Focuss()).plain_in_q
    assert copy.deepcopy(group) == group == pickle.loads(pickle.dumps(group))
    assert describe(group)["by"] == {"kind": "Heads", "count": 2, "dim": 0, "parts": 1}


def test_what_is_no_group_is_refused() -> None:
    with pytest.raises(InputError, match="by filter, channel, row, head or by a function"):
        Group(ReweightedL1(), by="rows")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs a penalty of single weights"):
        Group(Group(ReweightedL1()))
    with pytest.raises(InputError, match="needs a penalty of single weights"):
        Group(ReweightedL1)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- majorise and minimise


def penalty_of(penalty: Penalty, theta: Tensor, groups: Partition, scale: Tensor) -> Tensor:
    """Σ n·g(m)."""
    return (groups.sizes * penalty.value(magnitudes(theta, groups), scale)).sum()


def majoriser(penalty: Penalty, theta: Tensor, psi: Tensor, groups: Partition) -> Tensor:
    """Σ psi·√n·‖theta_G‖, or Σ psi·‖theta_G‖²."""
    squares = groups.sums(theta.square())
    return (psi * ((groups.sizes * squares).sqrt() if penalty.order == 1 else squares)).sum()


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda penalty: type(penalty).__name__)
@given(seed=seeds, size=st.floats(0.01, 10))
@settings(max_examples=30)
def test_the_majoriser_lies_above_and_touches(penalty: Penalty, seed: int, size: float) -> None:
    groups, scale = split(seed, 12, 4), torch.tensor(0.7).double()
    last, theta = normal(seed, 12), normal(seed + 1, 12) * size
    psi = penalty.psi(magnitudes(last, groups), scale)
    rise = majoriser(penalty, theta, psi, groups) - majoriser(penalty, last, psi, groups)
    change = penalty_of(penalty, theta, groups, scale) - penalty_of(penalty, last, groups, scale)
    assert float(change) <= float(rise) + 1e-9


def minimise(
    matrix: Tensor, target: Tensor, penalty: Penalty, weights: Tensor, groups: Partition
) -> Tensor:
    """argmin ½‖matrix·theta - target‖² + majoriser, by the proximal gradient; exact for order 2."""
    gram, moment = matrix.T @ matrix, matrix.T @ target
    if penalty.order == 2:
        return torch.linalg.solve(gram + 2 * groups.spread(weights).diag(), moment)
    rate = 1 / float(torch.linalg.matrix_norm(gram, 2))
    theta = torch.zeros_like(moment)
    for _ in range(1500):
        before = theta
        theta = theta - rate * (gram @ theta - moment)
        factors = soft_threshold(magnitudes(theta, groups), rate * weights)
        theta = theta * groups.spread(factors)
        if torch.dist(theta, before) < 1e-13:
            break
    return theta


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda penalty: type(penalty).__name__)
@given(seed=seeds, lam=st.floats(1e-3, 1.0))
@settings(max_examples=5)
def test_majorise_minimise_never_increases_the_objective(
    penalty: Penalty, seed: int, lam: float
) -> None:
    matrix, target, groups = normal(seed, 12, 8), normal(seed + 1, 12), split(seed, 8, 3)
    theta = torch.linalg.lstsq(matrix, target[:, None]).solution.flatten()
    scale = theta.square().mean().sqrt()

    def objective(theta: Tensor) -> float:
        fit = (matrix @ theta - target).square().sum() / 2
        return (fit + lam * penalty_of(penalty, theta, groups, scale)).item()

    values = [objective(theta)]
    for _ in range(4):
        psi = penalty.psi(magnitudes(theta, groups), scale)
        theta = minimise(matrix, target, penalty, lam * psi, groups)
        values.append(objective(theta))
    assert all(after <= before + 1e-8 for before, after in pairwise(values))
    assert values[-1] < values[0]


# ---------------------------------------------------------------------- the proximal step


@given(seed=seeds, amount=st.floats(0.01, 3))
@settings(max_examples=20)
def test_group_soft_thresholding_is_the_proximal_step(seed: int, amount: float) -> None:
    """argmin ½‖x - theta‖² + amount·Σ √n·‖x_G‖, against a minimiser that knows nothing of it."""
    theta, groups = normal(seed, 9), split(seed, 9, 3)
    found = theta * groups.spread(soft_threshold(magnitudes(theta, groups), amount))

    def objective(x: Tensor, smoothing: float = 0.0) -> Tensor:
        norms = (groups.sums(x.square()) + smoothing).sqrt()
        return (x - theta).square().sum() / 2 + amount * (
            groups.sizes.double().sqrt() * norms
        ).sum()

    x = theta.clone().requires_grad_()
    for smoothing in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
        solver = torch.optim.LBFGS([x], max_iter=100, line_search_fn="strong_wolfe")

        def closure(smoothing: float = smoothing, solver: torch.optim.LBFGS = solver) -> Tensor:
            solver.zero_grad()
            value = objective(x, smoothing)
            value.backward()
            return value

        solver.step(closure)
    torch.testing.assert_close(found, x.detach(), atol=2e-3, rtol=1e-3)
    # The objective is strongly convex, so its minimiser is told apart by this alone.
    for other in (x.detach(), theta, torch.zeros_like(theta), found + normal(seed + 1, 9)):
        bound = objective(found) + (other - found).square().sum() / 2
        assert float(objective(other)) >= float(bound) - 1e-9


def test_nothing_moves_by_an_amount_of_zero_and_zero_stays_zero() -> None:
    assert soft_threshold(torch.tensor([0.0, 2.0]), 0.0).tolist() == [0.0, 1.0]
    assert soft_threshold(torch.tensor([0.0, 2.0, 2.0]), 2.0).tolist() == [0.0, 0.0, 0.0]
    assert soft_threshold(torch.tensor([4.0]), 1.0).tolist() == [0.75]
