import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from asterism.errors import InputError
from asterism.pruning.scores import SCORES, count, lamp, magnitude, quality_threshold, score_all
from support import slow_selection

# ---------------------------------------------------------------------- scores


def lamp_by_definition(theta: Tensor) -> Tensor:
    squares = theta.flatten().double().square().tolist()
    scores = []
    for u, mine in enumerate(squares):
        # Of equal weights the earlier one counts as the larger.
        above = [v > mine or (v == mine and at <= u) for at, v in enumerate(squares)]
        total = sum(v for v, counts in zip(squares, above, strict=True) if counts)
        scores.append(mine / total if total else 0.0)
    return torch.tensor(scores).view(theta.shape)


def lamps(theta: Tensor, sizes: Tensor | None = None) -> Tensor:
    return score_all(theta, lamp, sizes)


@given(st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1e-3, 7.0]), min_size=1, max_size=20))
def test_lamp_is_its_definition(weights: list[float]) -> None:
    theta = torch.tensor(weights)
    torch.testing.assert_close(lamps(theta), lamp_by_definition(theta))
    slow = slow_selection.lamp(theta).float()
    torch.testing.assert_close(slow, lamp_by_definition(theta))


def test_lamp_in_two_dimensions_and_channels_last() -> None:
    theta = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    expected = lamp_by_definition(theta)
    torch.testing.assert_close(lamps(theta), expected)
    torch.testing.assert_close(lamps(theta.to(memory_format=torch.channels_last)), expected)


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_lamp_ranks_as_magnitude_does_and_ignores_the_layers_scale(seed: int, scale: float) -> None:
    theta = torch.randn(30, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(lamps(theta).argsort(), theta.abs().argsort())
    assert lamps(theta).max() == 1
    torch.testing.assert_close(lamps(theta * scale), lamps(theta), rtol=1e-4, atol=0)


@given(st.lists(st.tuples(st.floats(0.01, 10), st.integers(1, 4)), min_size=1, max_size=8))
def test_lamp_of_a_group_is_that_of_the_last_of_so_many_equal_weights(
    groups: list[tuple[float, int]],
) -> None:
    magnitudes, sizes = torch.tensor([m for m, _ in groups]), torch.tensor([n for _, n in groups])
    single = lamps(magnitudes.repeat_interleave(sizes))
    torch.testing.assert_close(lamps(magnitudes, sizes), single[sizes.cumsum(0) - 1])


def test_lamp_of_zeros_is_zero() -> None:
    assert lamps(torch.zeros(3)).tolist() == [0, 0, 0]


def test_magnitude() -> None:
    assert score_all(torch.tensor([-3.0, 0.0, 1.0]), magnitude).tolist() == [3, 0, 1]


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_scores_are_no_coarser_than_float32(name: str, dtype: torch.dtype) -> None:
    scores = score_all(torch.tensor([1.0, -2.0, 4.0], dtype=dtype), SCORES[name])
    assert scores.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


def test_the_quality_threshold_is_a_multiple_of_the_population_deviation() -> None:
    theta = torch.tensor([1.0, 1.0, 5.0, 5.0])
    assert quality_threshold(theta, 0.5) == pytest.approx(1.0)


# ---------------------------------------------------------------------- how many


@given(st.integers(1, 10**7), st.data())
def test_the_density_of_a_count_is_that_count(total: int, data: st.DataObject) -> None:
    keep = data.draw(st.integers(1, total))
    assert count(keep / total, total) == keep


@pytest.mark.parametrize(("density", "keep"), [(0.25, 3), (0.24, 2), (1.0, 10), (0.01, 0)])
def test_a_density_is_rounded_to_the_nearest_weight(density: float, keep: int) -> None:
    assert count(density, 10) == keep


@pytest.mark.parametrize("density", [0.0, -0.1, 1.1, math.nan])
def test_a_density_lies_between_zero_and_one(density: float) -> None:
    with pytest.raises(InputError, match=rf"density must lie in \(0, 1\], got {density}"):
        count(density, 10)
