import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from asterism.errors import InputError
from asterism.masks import (
    OUT,
    SCORES,
    count,
    keep_largest,
    lamp,
    magnitude,
    protect_largest,
    quality_threshold,
)

# Few distinct values, so that most of them tie; the extremes of what a score may be.
LEVELS = [OUT, 0.0, 1e-45, 1e-30, 0.1, 0.1 + 1e-8, 1.0, 1.0 + 2**-23, 2.0, 3e38, math.inf]
layers_of_scores = st.lists(
    st.lists(st.sampled_from(LEVELS), min_size=1, max_size=12), min_size=1, max_size=4
)


def reference(scores: Sequence[Tensor], keep: int) -> list[Tensor]:
    """Sort everything, stably, and keep the first."""
    joined = torch.cat([score.flatten() for score in scores])
    joined_mask = torch.zeros(len(joined), dtype=torch.bool)
    joined_mask[joined.argsort(descending=True, stable=True)[:keep]] = True
    parts = joined_mask.split([score.numel() for score in scores])
    return [part.view(score.shape) for part, score in zip(parts, scores, strict=True)]


def assert_same(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))


# ---------------------------------------------------------------------- selection


@given(layers_of_scores, st.data())
def test_keep_largest_equals_a_stable_sort(layers: list[list[float]], data: st.DataObject) -> None:
    scores = [torch.tensor(layer) for layer in layers]
    running = sum(int((score >= 0).sum()) for score in scores)
    keep = data.draw(st.integers(0, running))
    masks = keep_largest(scores, keep)
    assert_same(masks, reference(scores, keep))
    assert sum(int(mask.sum()) for mask in masks) == keep


@given(st.integers(0, 2**32 - 1), st.integers(0, 240))
def test_keep_largest_on_random_layers(seed: int, keep: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(4, 3, 2, 2), (10, 9), (102,)]
    scores = [torch.randn(shape, generator=generator).abs() for shape in shapes]
    assert_same(keep_largest(scores, keep), reference(scores, keep))


@pytest.mark.parametrize("keep", [0, 1, 7, 24])
def test_ties_follow_the_logical_order_whatever_the_memory_layout(keep: int) -> None:
    plain = torch.tensor([0.0, 1.0, 2.0, 1.0]).repeat(6)
    square = plain.view(2, 3, 2, 2)
    layouts = [
        square.contiguous(memory_format=torch.channels_last),
        square.transpose(0, 1).contiguous().transpose(0, 1),
        torch.stack([square, square], -1)[..., 0],
    ]
    for layout in layouts:
        assert not layout.is_contiguous()
        assert_same(keep_largest([layout], keep), reference([square], keep))
    transposed = plain.view(6, 4).t()
    assert_same(keep_largest([transposed], keep), reference([transposed.contiguous()], keep))


def test_all_and_none() -> None:
    scores = [torch.zeros(2, 2), torch.full((3,), math.inf)]
    assert [mask.sum().item() for mask in keep_largest(scores, 7)] == [4, 3]
    assert [mask.sum().item() for mask in keep_largest(scores, 0)] == [0, 0]
    assert_same(keep_largest(scores, 5), reference(scores, 5))


def test_double_precision_scores_keep_the_exact_number() -> None:
    scores = [1 + torch.arange(100, dtype=torch.float64) * 1e-12]  # all one float32
    assert keep_largest(scores, 37)[0].sum() == 37


def test_what_is_out_of_the_running_cannot_be_kept() -> None:
    scores = [torch.tensor([OUT, 1.0, OUT]), torch.tensor([OUT, 0.0])]
    assert [mask.tolist() for mask in keep_largest(scores, 2)] == [
        [False, True, False],
        [False, True],
    ]
    with pytest.raises(InputError, match="cannot keep 3 weights: 2 are left to choose from"):
        keep_largest(scores, 3)
    with pytest.raises(InputError, match="cannot keep -1 weights"):
        keep_largest(scores, -1)


def test_scores_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="NaN: has training diverged"):
        keep_largest([torch.tensor([1.0, math.nan])], 1)


def test_the_scores_are_not_written_to() -> None:
    scores = torch.tensor([1.0, 2.0, 2.0])
    keep_largest([scores], 1)
    protect_largest(scores)
    assert scores.tolist() == [1, 2, 2]


def test_millions_of_weights() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(5_000_000, generator=generator)
    (mask,) = keep_largest([scores.view(1000, 5000)], 123_456)
    assert mask.shape == (1000, 5000)
    assert mask.sum() == 123_456
    kept = scores[mask.view(-1)]
    assert kept.min() >= scores[~mask.view(-1)].max()


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


@given(st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1e-3, 7.0]), min_size=1, max_size=20))
def test_lamp_is_its_definition(weights: list[float]) -> None:
    theta = torch.tensor(weights)
    torch.testing.assert_close(lamp(theta), lamp_by_definition(theta))


def test_lamp_in_two_dimensions_and_channels_last() -> None:
    theta = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    expected = lamp_by_definition(theta)
    torch.testing.assert_close(lamp(theta), expected)
    torch.testing.assert_close(lamp(theta.to(memory_format=torch.channels_last)), expected)


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_lamp_ranks_as_magnitude_does_and_ignores_the_layers_scale(seed: int, scale: float) -> None:
    theta = torch.randn(30, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(lamp(theta).argsort(), theta.abs().argsort())
    assert lamp(theta).max() == 1
    torch.testing.assert_close(lamp(theta * scale), lamp(theta), rtol=1e-4, atol=0)


def test_lamp_of_zeros_is_zero() -> None:
    assert lamp(torch.zeros(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("score", SCORES)
def test_scores_carry_no_gradient_into_the_choice(score: str) -> None:
    theta = torch.nn.Parameter(torch.tensor([-3.0, 1.0]))
    (mask,) = keep_largest([SCORES[score](theta)], 1)
    assert mask.tolist() == [True, False]


def test_magnitude() -> None:
    assert magnitude(torch.tensor([-3.0, 0.0, 1.0])).tolist() == [3, 0, 1]


def test_protect_largest_raises_the_first_largest_alone() -> None:
    scores = torch.tensor([[1.0, 5.0], [5.0, OUT]])
    assert protect_largest(scores).tolist() == [[1, math.inf], [5, OUT]]
    flipped = scores.t()
    assert protect_largest(flipped).tolist() == [[1, math.inf], [5, OUT]]


def test_protect_largest_brings_nothing_back() -> None:
    assert protect_largest(torch.full((3,), OUT)).tolist() == [OUT] * 3


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
