"""Counting finds what sorting everything finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from asterism.errors import InputError
from asterism.kernels import library
from asterism.pruning.scores import SCORES, magnitude
from asterism.pruning.selection import MOST_PARTS, Candidates, select
from asterism.pruning.selection_bins import FINER
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
    assert [layer.count_here() for layer in layers] == [int(e.count_nonzero()) for e in alive]


@both_scores
def test_a_layer_in_which_nothing_is_alive(score: str) -> None:
    dead = Candidates(torch.ones(3), torch.zeros(3))
    cuts = select([dead, Candidates(torch.tensor([1.0, 2.0])), dead], 1, SCORES[score])
    assert [cut.mask().tolist() for cut in cuts] == [[False] * 3, [False, True], [False] * 3]


@both_scores
@pytest.mark.parametrize("keep", [1, 300_000, 777_777, 1_500_000])
def test_many_weights_over_several_chunks(score: str, keep: int) -> None:
    generator = torch.Generator().manual_seed(0)
    thetas = [torch.randn(1000, 1000, generator=generator), torch.randn(500_000).mul_(0.01)]
    assert_same(masks_of(thetas, keep, score), slow_selection.select(thetas, keep, score))


@both_scores
@pytest.mark.parametrize("kernels", ["", "none"], ids=["compiled", "by torch"])
def test_more_layers_than_one_table_holds(
    score: str, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASTERISM_KERNELS", kernels)
    generator = torch.Generator().manual_seed(0)
    thetas = [torch.randn(50 + n, generator=generator) * 2.0**-n for n in range(11)]
    assert len(thetas) > 2 * (MOST_PARTS >> 15)
    for keep in (11, 100, 333):
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
        select(layers, 3, magnitude)
    with pytest.raises(InputError, match="cannot keep -1 weights"):
        select(layers, -1, magnitude)


def test_the_weights_are_not_written_to() -> None:
    theta = torch.nn.Parameter(torch.tensor([-1.0, 2.0, -2.0]))
    assert masks_of([theta], 1, "lamp")[0].tolist() == [False, True, False]
    assert theta.tolist() == [-1, 2, -2]


def test_lamp_gives_each_layer_something_whatever_its_scale() -> None:
    theta = torch.randn(30, generator=torch.Generator().manual_seed(0))
    assert all(mask.any() for mask in masks_of([theta, theta * 1e-9], 2, "lamp"))


# ---------------------------------------------------------------------- many ties, little memory

# Of few bits, for sums of squares that are exact in whatever order they are added.
EXACT_LEVELS = [0.0, 2**-10, 0.25, -0.25, 0.375, 0.5, 1.0, -3.0]
runs = st.lists(
    st.tuples(st.sampled_from(EXACT_LEVELS), st.integers(1, 400)), min_size=1, max_size=5
)


@both_scores
@given(layers=st.lists(runs, min_size=1, max_size=4), seed=seeds, share=st.floats(0, 1))
def test_long_runs_of_equal_weights(
    score: str, layers: list[list[tuple[float, int]]], seed: int, share: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    thetas = []
    for layer in layers:
        theta = torch.cat([torch.full((length,), level) for level, length in layer])
        thetas.append(theta[torch.randperm(len(theta), generator=generator)])
    keep = int(share * sum(map(len, thetas)))
    assert_same(masks_of(thetas, keep, score), slow_selection.select(thetas, keep, score))


class LargestTensor(TorchDispatchMode):
    """Notes the bytes of the largest tensor that torch makes inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [each for each in tree_leaves(result) if isinstance(each, Tensor)]
        self.bytes = max([self.bytes, *(each.numel() * each.element_size() for each in made)])
        return result


def codebook_lenet5() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    values = torch.tensor([-0.1, -0.03, 0.03, 0.1])
    shapes = [(20, 1, 5, 5), (50, 20, 5, 5), (500, 800), (10, 500)]
    return [values[torch.randint(4, shape, generator=generator)] for shape in shapes]


def constant_beside(*shape: int) -> list[Tensor]:
    """As wide bounds as there can be on one side, and many bins between them on the other."""
    other = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return [torch.full((400, 250), 0.1), other]


@both_scores
@pytest.mark.parametrize(
    ("thetas", "keep"),
    [
        (codebook_lenet5(), 43_050),
        (constant_beside(10, 10), 10_000),
        (constant_beside(1000, 300), 60_000),
        ([torch.tensor(LEVELS * 3), torch.tensor(LEVELS)], 21),
        ([torch.tensor([1e-45, 3e38] * 9), torch.full((18,), 1.0)], 20),
    ],
    ids=["codebooks", "constant", "constant and many", "all levels", "extremes"],
)
def test_memory_follows_the_open_bins_and_not_the_range_they_span(
    score: str, thetas: list[Tensor], keep: int
) -> None:
    """Whose tables were of 0.4 to 19 GB."""
    with LargestTensor() as largest:
        cuts = select([Candidates(theta) for theta in thetas], keep, SCORES[score])
    assert sum(cut.count for cut in cuts) == keep
    assert largest.bytes <= 4 * 2**20


def test_equal_layers_share_ties_that_need_rounding() -> None:
    """0.1² times a number has no exact float64, and is the same in all layers all the same."""
    thetas = [torch.full((n,), 0.1) for n in (1000, 1700, 40_000)]
    assert [int(mask.sum()) for mask in masks_of(thetas, 2000, "lamp")] == [667, 667, 666]


# ---------------------------------------------------------------------- compiled


def tables(layer: Candidates, starts: Tensor, free_bits: int) -> list[Tensor]:
    """What is counted in bins, compiled and by torch."""
    found = []
    for kernels in ("", "none"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ASTERISM_KERNELS", kernels)
            found.append(count(layer, starts, free_bits))
    return found


def count(layer: Candidates, starts: Tensor, free_bits: int) -> Tensor:
    parts = 1 << (free_bits - FINER[free_bits])
    table = torch.zeros(len(starts), parts, 3, dtype=torch.int64)
    layer.count_into(table, starts, free_bits, squares=True)
    return table


@pytest.mark.skipif(library.load() is None, reason="no compiled kernels")
@settings(max_examples=25)
@given(
    seed=seeds, size=st.integers(1, 3000), alive=st.booleans(), free_bits=st.sampled_from([16, 8])
)
def test_compiled_counts_are_those_of_torch(
    seed: int, size: int, alive: bool, free_bits: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(size, generator=generator)
    theta[::5] = theta[0]
    layer = Candidates(theta, (theta > -0.5).float() if alive else None)
    assert torch.equal(*tables(layer, torch.tensor([0]), 31))
    # Bins around some of the weights, with gaps between them.
    bits = theta[::7].abs().view(torch.int32) >> free_bits << free_bits
    assert torch.equal(*tables(layer, bits.unique(), free_bits))


@pytest.mark.parametrize("alive", [False, True])
def test_more_weights_than_one_chunk_of_the_compiled_count(alive: bool) -> None:
    theta = torch.full((2**23 + 5,), 1.9999999)
    layer = Candidates(theta, torch.ones_like(theta) if alive else None)
    table = count(layer, torch.tensor([0]), 31)
    rest = 0xFFFF
    assert table.sum((0, 1)).tolist() == [2**23 + 5, (2**23 + 5) * rest, (2**23 + 5) * rest**2]


@both_scores
@settings(max_examples=20)
@given(layers=tied_layers, data=st.data())
def test_without_compiled_kernels(
    score: str, layers: list[list[float]], data: st.DataObject
) -> None:
    thetas = [torch.tensor(layer) for layer in layers]
    keep = data.draw(st.integers(0, sum(map(len, layers))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASTERISM_KERNELS", "none")
        assert_same(masks_of(thetas, keep, score), slow_selection.select(thetas, keep, score))
