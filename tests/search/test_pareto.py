"""Weights of many networks at once, and which of them are worth keeping."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from asterism.search.pareto import Point, pack, pareto, unpack


def test_packing_is_exact_and_a_copy_and_small_where_sparse():
    torch.manual_seed(0)
    sparse = torch.randn(30, 40, dtype=torch.float64)
    sparse[torch.rand(30, 40) < 0.9] = 0
    state = {
        "sparse": sparse,
        "dense": torch.randn(3, 3).to(memory_format=torch.contiguous_format),
        "count": torch.tensor(0),
        "empty": torch.zeros(0),
        "extra": {"anything": [1, 2]},
    }
    packed = pack(state)
    assert packed["sparse"]["index"].numel() == sparse.count_nonzero()
    before = sparse.clone()
    sparse.zero_()
    back = unpack(packed)
    assert torch.equal(back["sparse"], before)
    assert back["sparse"].dtype == torch.float64
    for name in ("dense", "count", "empty"):
        assert torch.equal(back[name], state[name])
        assert back[name].dtype == state[name].dtype
    assert back["extra"] == {"anything": [1, 2]}


points = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1)


@given(points, st.booleans())
def test_the_front_is_exactly_what_nothing_else_beats(pairs, higher):
    made = [Point(0.0, nonzeros, metric, 0, {}) for nonzeros, metric in pairs]
    front = pareto(made, higher)
    sign = 1 if higher else -1

    def beats(one: Point, other: Point) -> bool:
        no_worse = one.nonzeros <= other.nonzeros and sign * one.metric >= sign * other.metric
        return no_worse and (one.nonzeros, one.metric) != (other.nonzeros, other.metric)

    expected = {
        (each.nonzeros, each.metric)
        for each in made
        if not any(beats(other, each) for other in made)
    }
    assert {(each.nonzeros, each.metric) for each in front} == expected
    assert len(front) == len(expected)
