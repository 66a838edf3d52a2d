import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from asterism.errors import InputError
from asterism.scaling.initialisers import (
    Exact,
    Greedy,
    Initialiser,
    Noise,
    divide,
    root_mean_square,
)

EVERY: list[Initialiser] = [Exact(), Noise(0.3), Greedy()]
seeds = st.integers(0, 2**32 - 1)


def no_noise() -> Tensor:
    raise AssertionError("only the noise initialiser draws noise")


def draw(seed: int, size: int = 40, dead: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    """theta, q and the new omega of a layer that is pruned in part, in float64."""
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(size, generator=generator) >= dead
    kept[0] = True
    q, before, omega = torch.randn(3, size, generator=generator, dtype=torch.float64) * kept
    return q * before.abs(), q, omega.abs()


def noise_of(seed: int, size: int = 40) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=torch.float64)


@given(seeds)
def test_exact_leaves_theta_where_it_was(seed: int) -> None:
    theta, q, omega = draw(seed)
    torch.testing.assert_close(Exact().start(theta, q, omega, no_noise) * omega, theta)


@given(seeds)
def test_greedy_keeps_q_and_the_layers_norm(seed: int) -> None:
    theta, q, omega = draw(seed)
    start = Greedy().start(theta, q, omega, no_noise)
    assert torch.equal(start, q)
    moved = start * omega * Greedy().factor(theta, q, omega)
    torch.testing.assert_close(moved.norm(), theta.norm())


@given(seeds)
def test_greedy_makes_small_weights_smaller_at_once(seed: int) -> None:
    theta, _, _ = draw(seed, dead=0)
    omega = theta.abs()
    moved = theta * omega * Greedy().factor(theta, theta, omega)
    order = theta.abs().argsort()
    before, after = theta.abs()[order], moved.abs()[order]
    assert after[0] / after[-1] < before[0] / before[-1]


@pytest.mark.parametrize("sigma", [0.01, 0.5])
def test_noise_has_the_stated_size_in_units_of_rms_q(sigma: float) -> None:
    theta, q, omega = draw(0, size=100_000)
    omega += 0.1 * (omega != 0)
    start = Noise(sigma).start(theta, q, omega, lambda: noise_of(1, 100_000))
    exact, live = divide(theta, omega), omega != 0
    added = (start - exact)[live]
    unit = exact[live].square().mean().sqrt()
    assert added.std() / unit == pytest.approx(sigma, rel=0.02)
    assert added.mean() / unit == pytest.approx(0, abs=0.02 * sigma)


@given(seeds)
def test_noise_of_size_zero_is_exact(seed: int) -> None:
    theta, q, omega = draw(seed)
    start = Noise(0.0).start(theta, q, omega, lambda: noise_of(seed))
    assert torch.equal(start, Exact().start(theta, q, omega, no_noise))


@pytest.mark.parametrize("initialiser", [Exact(), Noise()], ids=repr)
@given(seed=seeds)
def test_the_normalised_omega_has_rms_one_over_the_live_weights(
    initialiser: Initialiser, seed: int
) -> None:
    theta, q, omega = draw(seed)
    normalised = omega * initialiser.factor(theta, q, omega)
    rms = normalised[omega != 0].square().mean().sqrt().item()
    assert rms == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("initialiser", EVERY, ids=repr)
@given(seed=seeds)
def test_pruned_weights_start_at_zero(initialiser: Initialiser, seed: int) -> None:
    theta, q, omega = draw(seed, dead=0.6)
    start = initialiser.start(theta, q, omega, lambda: noise_of(seed))
    assert start.isfinite().all()
    assert (start[omega == 0] == 0).all()


@pytest.mark.parametrize("initialiser", EVERY, ids=repr)
def test_the_factor_does_not_see_pruned_weights(initialiser: Initialiser) -> None:
    theta, q, omega = draw(0, dead=0)
    zeros = torch.zeros(3, dtype=torch.float64)
    padded = (torch.cat([each, zeros]) for each in (theta, q, omega))
    alone = initialiser.factor(theta, q, omega)
    torch.testing.assert_close(initialiser.factor(*padded), alone)


@pytest.mark.parametrize("initialiser", EVERY, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_layer_without_live_weights_stays_zero(
    initialiser: Initialiser, dtype: torch.dtype
) -> None:
    zeros = torch.zeros(3, dtype=dtype)
    omega = zeros * initialiser.factor(zeros, zeros, zeros)
    start = initialiser.start(zeros, zeros, omega, lambda: torch.ones(3, dtype=dtype))
    assert omega.tolist() == start.tolist() == [0, 0, 0]
    assert omega.dtype == start.dtype == dtype


def test_the_weights_given_are_not_written_to() -> None:
    given_tensors = draw(0)
    copies = [each.clone() for each in given_tensors]
    for initialiser in EVERY:
        initialiser.factor(*given_tensors)
        initialiser.start(*given_tensors, lambda: noise_of(0))
    assert all(map(torch.equal, given_tensors, copies))


def test_known_answers() -> None:
    theta, omega = torch.tensor([6.0, 0.0, 5.0]), torch.tensor([2.0, 4.0, 0.0])
    assert divide(theta, omega).tolist() == [3, 0, 0]
    values = torch.tensor([3.0, 4.0, 0.0])
    assert root_mean_square(values, values != 0) == pytest.approx(math.sqrt(12.5))


@pytest.mark.parametrize("sigma", [-0.1, math.nan, math.inf])
def test_sigma_must_be_non_negative_and_finite(sigma: float) -> None:
    with pytest.raises(InputError, match=f"sigma must be non-negative and finite, got {sigma}"):
        Noise(sigma)
