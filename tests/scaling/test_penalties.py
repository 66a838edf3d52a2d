import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from asterism.errors import InputError
from asterism.scaling.penalties import (
    Concave,
    Focuss,
    HardThreshold,
    Penalty,
    ReweightedL1,
    ReweightedL2,
)
from asterism.storage.config import describe


def saturating(z: Tensor) -> Tensor:
    return 1 - torch.exp(-z)


def bump(z: Tensor) -> Tensor:
    """h(z²) = 1 - exp(-z²/2): second order, and of none of the named families."""
    return 1 - torch.exp(-z * z / 2)


# psi and value belong together exactly; the printed Focuss, whose tau is no part of g, does not.
MAJORISED: list[Penalty] = [
    ReweightedL1(tau=0.3),
    ReweightedL2(tau=0.3),
    *(Focuss(p, tau=0.3, classical=True) for p in (0.0, 0.5, 1.0, 2.0)),
    Concave(saturating),
    Concave(bump, order=2),
]
PRINTED = [Focuss(p, tau=0.3) for p in (0.0, 0.5, 1.0, 2.0)]
EVERY = MAJORISED + PRINTED
ABSOLUTE = [replace(penalty, relative=False) for penalty in EVERY]  # type: ignore[type-var]

magnitudes = st.floats(0, 50)
scales = st.floats(0.01, 100)


def name(penalty: object) -> str:
    return str(describe(penalty))


def tensor(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def derivative(penalty: Penalty, z: Tensor, scale: float) -> Tensor:
    """g'(z) for order 1, h'(z²) for order 2, of `value` itself."""
    x = (z if penalty.order == 1 else z.square()).detach().requires_grad_()
    value = penalty.value(x if penalty.order == 1 else x.sqrt(), scale)
    return torch.autograd.grad(value.sum(), x)[0]


# ---------------------------------------------------------------------- what every penalty obeys


@pytest.mark.parametrize("penalty", MAJORISED, ids=name)
@pytest.mark.parametrize("relative", [True, False])
def test_psi_is_the_derivative_of_the_value(penalty: Any, relative: bool) -> None:
    penalty, z, scale = replace(penalty, relative=relative), tensor(1e-3, 0.2, 1.0, 3.0), 0.7
    torch.testing.assert_close(penalty.psi(z, scale), derivative(penalty, z, scale))


@pytest.mark.parametrize("penalty", PRINTED, ids=name)
def test_psi_of_the_printed_focuss_is_the_derivative_as_tau_vanishes(penalty: Focuss) -> None:
    z, bare = tensor(0.2, 1.0, 3.0), replace(penalty, tau=1e-12)
    torch.testing.assert_close(bare.psi(z), derivative(bare, z, 1.0))


@pytest.mark.parametrize("penalty", [*MAJORISED, *ABSOLUTE], ids=name)
def test_omega_undoes_psi_by_the_rule_of_its_order(penalty: Penalty) -> None:
    z, scale = tensor(0, 1e-3, 0.5, 20), 0.7
    order = 1 if isinstance(penalty, Focuss) and not penalty.classical else penalty.order
    torch.testing.assert_close(penalty.omega(z, scale) ** order * penalty.psi(z, scale), z**0)


def test_the_printed_focuss_differs_from_the_classical_one() -> None:
    z = tensor(0.0, 4.0)
    printed, classical = (Focuss(0.5, 1e-9, classical=c, relative=False) for c in (False, True))
    torch.testing.assert_close(printed.omega(z), tensor(1e-9, 8))  # 4^(2-p)
    torch.testing.assert_close(classical.omega(z)[1], tensor(2**1.5)[0])  # 4^(1-p/2)


def test_the_classical_focuss_at_zero_is_reweighted_l2() -> None:
    z, tau = tensor(0, 0.3, 4), 0.2
    focuss = Focuss(0.0, tau, classical=True).omega(z, 3.0)
    torch.testing.assert_close(focuss, ReweightedL2(tau**2).omega(z, 3.0))


@pytest.mark.parametrize("penalty", EVERY, ids=name)
@given(z=st.lists(magnitudes, min_size=1, max_size=5), scale=scales)
def test_omega_stays_positive(penalty: Any, z: list[float], scale: float) -> None:
    if isinstance(penalty, Concave):
        z = [min(each, 8 * scale) for each in z]  # beyond, their psi underflows
    else:
        penalty = replace(penalty, tau=1e-8)
    omega = penalty.omega(torch.tensor(z), scale)
    assert (omega > 0).all()
    assert omega.isfinite().all()


POWER: dict[str, Callable[[Any], float]] = {
    "ReweightedL1": lambda penalty: 1.0,
    "ReweightedL2": lambda penalty: 1.0,
    "Focuss": lambda penalty: (2 - penalty.p) / (2 if penalty.classical else 1),
    "Concave": lambda penalty: 1.0,
}


@pytest.mark.parametrize("penalty", EVERY, ids=name)
@given(factor=scales, scale=scales)
def test_a_rescaled_layer_behaves_the_same(penalty: Any, factor: float, scale: float) -> None:
    z = tensor(0, 0.1, 1, 5) * scale
    power = POWER[type(penalty).__name__](penalty)
    rescaled = penalty.omega(factor * z, factor * scale)
    torch.testing.assert_close(rescaled, factor**power * penalty.omega(z, scale))


@pytest.mark.parametrize("penalty", ABSOLUTE, ids=name)
def test_an_absolute_penalty_does_not_know_the_layers_scale(penalty: Penalty) -> None:
    z = tensor(0.1, 1, 5)
    for function in (penalty.omega, penalty.psi, penalty.value):
        assert torch.equal(function(z, 17.0), function(z, 1.0))


def test_the_scale_may_be_a_tensor() -> None:
    z = tensor(0.1, 1, 5)
    for penalty in EVERY:
        torch.testing.assert_close(penalty.omega(z, tensor(0.7)), penalty.omega(z, 0.7))


@pytest.mark.parametrize("penalty", MAJORISED, ids=name)
@given(x=magnitudes, z=magnitudes, scale=st.floats(0.5, 10))
def test_the_majoriser_lies_above_and_touches(
    penalty: Penalty, x: float, z: float, scale: float
) -> None:
    if isinstance(penalty, Concave):
        x, z = min(x, 8 * scale), min(z, 8 * scale)
    here, there, power = tensor(z), tensor(x), penalty.order
    rise = penalty.psi(here, scale) * (there**power - here**power)
    majoriser = penalty.value(here, scale) + rise
    assert penalty.value(there, scale) <= majoriser + 1e-9 * (1 + rise.abs())


@pytest.mark.parametrize("penalty", EVERY, ids=name)
@given(z=st.lists(magnitudes, min_size=2, max_size=8))
def test_relative_psi_is_one_at_zero_and_falls(penalty: Penalty, z: list[float]) -> None:
    ordered = tensor(0, *(min(each, 8) for each in sorted(z)))
    psi = penalty.relative_psi(ordered)
    assert psi[0] == pytest.approx(1)
    assert (psi.diff() <= 1e-15).all()


@pytest.mark.parametrize("penalty", [*EVERY, HardThreshold(0.5)], ids=name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_shape_are_the_weights(penalty: Penalty, dtype: torch.dtype) -> None:
    omega = penalty.omega(torch.ones(2, 3, 1, dtype=dtype), 0.5)
    assert (omega.dtype, omega.shape) == (dtype, (2, 3, 1))


@pytest.mark.parametrize("penalty", [*EVERY, HardThreshold(0.5)], ids=name)
def test_penalties_can_be_copied_and_pickled(penalty: Penalty) -> None:
    assert pickle.loads(pickle.dumps(penalty)) == copy.deepcopy(penalty) == penalty


@pytest.mark.parametrize("make", [ReweightedL1, ReweightedL2, lambda tau: Focuss(0.5, tau)])
@pytest.mark.parametrize("tau", [0.0, -1.0, math.nan, math.inf])
def test_tau_must_be_positive_and_finite(make: Callable[[float], Penalty], tau: float) -> None:
    with pytest.raises(InputError, match=rf"tau must be positive and finite, got {tau}"):
        make(tau)


@pytest.mark.parametrize("p", [-0.1, 2.1, math.nan])
def test_focuss_refuses_p_outside_its_range(p: float) -> None:
    with pytest.raises(InputError, match=rf"0 ≤ p ≤ 2, got p = {p}"):
        Focuss(p)


# ---------------------------------------------------------------------- any other g


@pytest.mark.parametrize("relative", [True, False])
def test_a_concave_log_is_the_named_penalty_at_zero_too(relative: bool) -> None:
    z, scale, tau = tensor(0, 1e-6, 0.3, 2), 0.7, 0.25
    pairs: list[tuple[Penalty, Penalty]] = [
        (Concave(lambda z: torch.log(z + tau), 1, relative), ReweightedL1(tau, relative)),
        (Concave(lambda z: torch.log(z * z + tau), 2, relative), ReweightedL2(tau, relative)),
    ]
    for concave, named in pairs:
        torch.testing.assert_close(concave.omega(z, scale), named.omega(z, scale))
        torch.testing.assert_close(concave.psi(z, scale), named.psi(z, scale))


def test_autograd_works_where_gradients_are_off_and_leaves_the_weights_alone() -> None:
    theta = torch.nn.Parameter(torch.ones(3))
    with torch.no_grad():
        omega = Concave(saturating).omega(theta.abs())
    assert not omega.requires_grad
    assert theta.grad is None


def square_root(z: Tensor) -> Tensor:
    return z.sqrt()


def falling(z: Tensor) -> Tensor:
    return -z


def capped(z: Tensor) -> Tensor:
    return z.clamp(max=1)


def flat(z: Tensor) -> Tensor:
    return torch.ones_like(z)


def linear(z: Tensor) -> Tensor:
    return z


@pytest.mark.parametrize(
    ("g", "order", "found"),
    [
        (square_root, 1, "found inf at z = 0"),
        (square_root, 2, "found inf at z = 0"),
        (linear, 2, "found inf at z = 0"),
        (falling, 1, "found -1 at z = 0"),
        (falling, 2, "found -inf at z = 0"),
        (capped, 1, "found 0 at z = 2"),
        (flat, 1, "found 0 at z = 0"),
        (flat, 2, "found 0 at z = 0"),
    ],
)
def test_a_psi_without_an_inverse_is_named(
    g: Callable[[Tensor], Tensor], order: int, found: str
) -> None:
    with pytest.raises(InputError, match=rf"penalty {g.__name__} must be positive.*{found}"):
        Concave(g, order, relative=False).omega(tensor(0, 2))


def test_a_second_order_penalty_without_curvature_is_fine_away_from_zero() -> None:
    torch.testing.assert_close(Concave(linear, 2).psi(tensor(0.5, 2)), tensor(1, 0.25))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_second_order_psi_survives_weights_that_are_all_but_zero(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).smallest_normal
    z = torch.tensor([0, tiny * torch.finfo(dtype).eps, tiny, tiny**0.5, 2 * tiny**0.5]).to(dtype)
    torch.testing.assert_close(Concave(bump, order=2).psi(z), torch.full_like(z, 0.5))


@pytest.mark.parametrize("order", [0, 3])
def test_a_penalty_is_of_first_or_second_order(order: int) -> None:
    with pytest.raises(InputError, match=f"order 1 or 2, got order = {order}"):
        Concave(saturating, order)


# ---------------------------------------------------------------------- the special case DNS


def surgery(start: Tensor, steps: list[Tensor], from_q: bool) -> list[list[float]]:
    """omega after each step of q, computed from theta = q ⊙ omega or from q itself."""
    penalty, q, omega, seen = HardThreshold(1.0, relative=False), start, torch.ones_like(start), []
    for step in steps:
        q = q + step
        omega = penalty.omega((q if from_q else q * omega).abs(), previous=omega)
        seen.append(omega.tolist())
    return seen


def test_computed_from_theta_what_is_pruned_stays_pruned() -> None:
    shrink, grow = tensor(-1.5, 0), tensor(3, 0)
    assert surgery(tensor(2, 2), [shrink, grow, grow], from_q=False) == [[0, 1]] * 3


def test_computed_from_q_what_is_pruned_can_return() -> None:
    shrink, grow = tensor(-1.5, 0), tensor(3, 0)
    assert surgery(tensor(2, 2), [shrink, grow, grow], from_q=True) == [[0, 1], [1, 1], [1, 1]]


@given(st.lists(st.lists(st.floats(-3, 3), min_size=4, max_size=4), min_size=1, max_size=6))
def test_from_theta_omega_never_rises(moves: list[list[float]]) -> None:
    seen = surgery(torch.full((4,), 1.5), [torch.tensor(move) for move in moves], from_q=False)
    assert all((tensor(*a) >= tensor(*b)).all() for a, b in pairwise(seen))


def test_between_the_thresholds_omega_is_what_it_was() -> None:
    penalty = HardThreshold(1.0, 2.0, relative=False)
    z = torch.tensor([0.9, 1.0, 1.9, 2.0]).repeat(2)
    previous = torch.tensor([0.0, 1.0]).repeat_interleave(4)
    assert penalty.omega(z, previous=previous).tolist() == [0, 0, 0, 1, 0, 1, 1, 1]
    assert penalty.omega(z[:4]).tolist() == [0, 1, 1, 1]  # omega_0 = 1


def test_thresholds_are_in_units_of_the_layers_scale() -> None:
    z = torch.tensor([0.9, 1.1, 2.1])
    assert HardThreshold(0.5, 1.0).omega(z, 2.0, torch.zeros(3)).tolist() == [0, 0, 1]


def test_the_value_of_a_hard_threshold_is_the_step_times_z() -> None:
    z = torch.tensor([0.5, 1.0, 3.0])
    assert HardThreshold(1.0, relative=False).value(z).tolist() == [0, 1, 3]


def test_a_hard_threshold_has_no_psi() -> None:
    with pytest.raises(InputError, match="HardThreshold has no psi: use it with lam = 0"):
        HardThreshold(1.0).psi(torch.ones(1))


@pytest.mark.parametrize(
    ("a", "b"), [(-1.0, None), (2.0, 1.0), (math.nan, None), (1.0, math.nan), (1.0, math.inf)]
)
def test_thresholds_out_of_order_are_refused(a: float, b: float | None) -> None:
    with pytest.raises(InputError, match=f"0 ≤ a ≤ b < ∞, got a = {a}, b = {b}"):
        HardThreshold(a, b)
