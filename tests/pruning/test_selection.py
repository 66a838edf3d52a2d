"""Counting finds what sorting everything finds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from asterism.errors import InputError
from asterism.pruning import selection
from asterism.pruning.selection import SCORES, Candidates, select
from support import slow_selection

# Few distinct values, so that most of them tie; the extremes of what a weight may be.
LEVELS = [0.0, 1e-45, 1e-30, 0.1, -0.1, 0.1 + 1e-8, 1.0, 1.0 + 2**-23, -2.0, 3e38]
tied_layers = st.lists(
    st.lists(st.sampled_from(LEVELS), min_size=1, max_size=12), min_size=1, max_size=4
)
seeds = st.integers(0, 2**32 - 1)
both_scores = pytest.mark.parametrize("score", SCORES)


def masks_of(thetas: Sequence[Tensor], keep: int, score: str = "magnitude") -> list[Tensor]:
    cuts = select([Candidates(theta) for theta in thetas], keep, SCORES[score])
    masks = [cut.mask() for cut in cuts]
    assert [cut.count for cut in cuts] == [int(mask.sum()) for mask in masks]
    return masks


def assert_same(found: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))


@both_scores
@given(layers=tied_layers, data=st.data())
def test_ties_fall_as_in_a_stable_sort(
    score: str, layers: list[list[float]], data: st.DataObject
) -> None:
    thetas = [torch.tensor(layer) for layer in layers]
    keep = data.draw(st.integers(0, sum(map(len, layers))))
    assert_same(masks_of(thetas, keep, score), slow_selection.select(thetas, keep, score))


@both_scores
@given(seed=seeds, keep=st.integers(0, 240), scale=st.floats(1e-20, 1e20))
def test_random_layers_of_different_scales(score: str, seed: int, keep: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    scales = {(4, 3, 2, 2): 1.0, (10, 9): scale, (102,): 0.1}
    thetas = [torch.randn(s, generator=generator) * factor for s, factor in scales.items()]
    assert_same(masks_of(thetas, keep, score), slow_selection.select(thetas, keep, score))


@both_scores
@given(seed=seeds, data=st.data())
def test_the_dead_are_not_chosen(score: str, seed: int, data: st.DataObject) -> None:
    generator = torch.Generator().manual_seed(seed)
    thetas = [torch.randn(n, generator=generator) for n in (30, 20)]
    alive = [torch.rand(n, generator=generator) * (torch.arange(n) % 3 != 0) for n in (30, 20)]
    keep = data.draw(st.integers(0, sum(int(each.count_nonzero()) for each in alive)))
    layers = [Candidates(*each) for each in zip(thetas, alive, strict=True)]
    found = [cut.mask() for cut in select(layers, keep, SCORES[score])]
    assert_same(found, slow_selection.select(thetas, keep, score, alive))
    assert [layer.count() for layer in layers] == [int(each.count_nonzero()) for each in alive]


@both_scores
@pytest.mark.parametrize("keep", [1, 300_000, 777_777, 1_500_000])
def test_many_weights_over_several_chunks(score: str, keep: int) -> None:
    generator = torch.Generator().manual_seed(0)
    thetas = [torch.randn(1000, 1000, generator=generator), torch.randn(500_000).mul_(0.01)]
    assert_same(masks_of(thetas, keep, score), slow_selection.select(thetas, keep, score))


@both_scores
@pytest.mark.parametrize("keep", [1, 2, 123_457, 400_000, 555_555, 800_000])
def test_many_equal_weights(score: str, keep: int) -> None:
    """Runs longer than the pieces they are divided into, and live zeros."""
    coarse = torch.randn(300_000, generator=torch.Generator().manual_seed(0)).round()
    thetas = [torch.full((500, 1000), 0.25), coarse]
    assert_same(masks_of(thetas, keep, score), slow_selection.select(thetas, keep, score))


@both_scores
def test_layers_that_are_the_same_come_in_order(score: str) -> None:
    theta = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    for keep in range(1, 3000, 97):
        counts = [int(mask.sum()) for mask in masks_of([theta, theta, theta], keep, score)]
        assert sum(counts) == keep
        assert counts == sorted(counts, reverse=True)
        assert counts[0] - counts[-1] <= 1


@both_scores
@pytest.mark.parametrize("keep", [0, 1, 7, 24])
def test_ties_follow_the_logical_order_whatever_the_memory_layout(score: str, keep: int) -> None:
    plain = torch.tensor([0.0, 1.0, 2.0, 1.0]).repeat(6)
    square = plain.view(2, 3, 2, 2)
    layouts = [
        square.contiguous(memory_format=torch.channels_last),
        square.transpose(0, 1).contiguous().transpose(0, 1),
        torch.stack([square, square], -1)[..., 0],
    ]
    expected = slow_selection.select([square], keep, score)
    for layout in layouts:
        assert not layout.is_contiguous()
        assert_same(masks_of([layout], keep, score), expected)


@both_scores
def test_double_precision_keeps_the_exact_number(score: str) -> None:
    """Magnitudes that are one float32, and those beyond it, tie."""
    weights = 1 + torch.arange(100, dtype=torch.float64) * 1e-12
    assert masks_of([weights], 37, score)[0].tolist() == [True] * 37 + [False] * 63
    beyond = torch.tensor([1e300, 1.0, 1e200, 0.0], dtype=torch.float64)
    assert masks_of([beyond], 1, score)[0].tolist() == [True, False, False, False]


def test_what_cannot_be_kept() -> None:
    layers = [Candidates(torch.ones(3), torch.tensor([0.0, 0.5, 0.0])), Candidates(torch.ones(1))]
    with pytest.raises(InputError, match="cannot keep 3 weights: 2 are left to choose from"):
        select(layers, 3, selection.magnitude)
    with pytest.raises(InputError, match="cannot keep -1 weights"):
        select(layers, -1, selection.magnitude)


def test_the_weights_are_not_written_to() -> None:
    theta = torch.nn.Parameter(torch.tensor([-1.0, 2.0, -2.0]))
    assert masks_of([theta], 1, "lamp")[0].tolist() == [False, True, False]
    assert theta.tolist() == [-1, 2, -2]


# ---------------------------------------------------------------------- scores


def lamp_by_definition(theta: Tensor) -> Tensor:
    squares = theta.flatten().double().square().tolist()
    scores = []
    for u, mine in enumerate(squares):
        # Of equal weights the earlier one counts as the larger.
        above = [v > mine or (v == mine and at <= u) for at, v in enumerate(squares)]
        total = sum(v for v, counts in zip(squares, above, strict=True) if counts)
        scores.append(mine / total if total else 0.0)
    return torch.tensor(scores, dtype=torch.float64).view(theta.shape)


@given(st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1e-3, 7.0]), min_size=1, max_size=20))
def test_lamp_is_its_definition(weights: list[float]) -> None:
    theta = torch.tensor(weights)
    expected = lamp_by_definition(theta)
    torch.testing.assert_close(slow_selection.lamp(theta), expected)
    totals = theta.double().square().sort(descending=True).values.cumsum(0)
    values = theta.double().abs().sort(descending=True).values
    found = selection.lamp(values, totals)
    torch.testing.assert_close(found, expected.sort(descending=True).values)


def test_lamp_gives_each_layer_something_whatever_its_scale() -> None:
    theta = torch.randn(30, generator=torch.Generator().manual_seed(0))
    assert all(mask.any() for mask in masks_of([theta, theta * 1e-9], 2, "lamp"))
    assert math.isclose(float(slow_selection.lamp(theta).max()), 1.0)
