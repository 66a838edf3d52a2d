"""Sparse recurrent matrices in steps: every weight once, where its input is, nearly as it was."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import asterism.runtime.layers.covering as covering
from asterism.runtime.layers.covering import LEFT, TURNED, VECTOR, Orders, cover, orders_of

SIDES = (8, 16)


def matrix(rows: int, units: int, density: float, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    sizes = np.float32(10.0) ** random.integers(-20, 20, (rows, units)).astype(np.float32)
    weight = random.standard_normal((rows, units)).astype(np.float32) * sizes
    return weight * (random.random((rows, units)) < density)


def put_back(found: covering.Covered, orders: Orders, shape: tuple[int, int]) -> np.ndarray:
    """The matrix of which these are the steps; each weight must come once."""
    side = found.steps.shape[1]
    weight = np.zeros((len(found.counts) * side, shape[1]), np.float32)
    step = 0
    for i, count in enumerate(found.counts):
        rows, before = weight[i * side : (i + 1) * side], 0
        for weights, places in zip(found.left[i], found.places[i], strict=True):
            for row in np.flatnonzero(weights):
                assert rows[row, places[row]] == 0
                rows[row, places[row]] = weights[row]
        for _ in range(count):
            windows = [found.starts[step]] if side == VECTOR else [before, found.starts[step]]
            reached = np.concatenate([orders.columns[at : at + side] for at in windows])
            for row in np.flatnonzero(found.steps[step]):
                bits = int(found.steps[step, row].view(np.uint32))
                column = reached[bits % len(reached)]
                assert rows[row, column] == 0
                rows[row, column] = found.steps[step, row]
            before = found.starts[step]
            step += 1
    assert step == len(found.steps) == len(found.starts)
    return weight[: shape[0]]


@given(
    st.integers(1, 40),
    st.integers(1, 200),
    st.floats(0, 1),
    st.integers(0, 999),
    st.sampled_from(SIDES),
)
@example(16, 513, 0.05, 0, 8)
@example(32, 513, 0.05, 0, 16)
@example(8, 4100, 0.01, 0, 8)
@example(8, 4100, 0.01, 0, 16)
def test_steps_have_every_weight_once(
    rows: int, units: int, density: float, seed: int, side: int
) -> None:
    weight, orders = matrix(rows, units, density, seed), orders_of(units, side)
    found = cover(weight, orders, side)
    made = put_back(found, orders, weight.shape)
    np.testing.assert_array_equal(made != 0, weight != 0)
    # Four units in the last place: the three lowest bits are another number; or sixteen, of five.
    np.testing.assert_allclose(made, weight, rtol=2**-21 if side == 8 else 2**-19)


@pytest.mark.parametrize("side", SIDES)
def test_rows_of_few_weights_take_no_step(side: int) -> None:
    found = cover(np.ones((side, LEFT), np.float32), orders_of(LEFT, side), side)
    assert len(found.steps) == 0
    np.testing.assert_array_equal(found.left, 1)


@pytest.mark.parametrize("side", SIDES)
def test_the_smallest_numbers_stay_numbers(side: int) -> None:
    tiny = np.full((side, 64), np.float32(1e-45))
    found = cover(tiny, orders_of(64, side), side)
    assert np.isfinite(found.steps).all()
    assert np.abs(found.steps).max() < 1e-43


@given(st.integers(1, 5000), st.sampled_from(SIDES))
def test_orders_have_every_unit_and_stay_near(units: int, side: int) -> None:
    orders = orders_of(units, side)
    size = -(-units // TURNED) * TURNED
    for order in orders.columns.reshape(orders.number, size):
        np.testing.assert_array_equal(np.sort(order)[:units], np.arange(units))
        assert (np.sort(order)[units:] == units).all()
    assert orders.number == 1 or orders.columns.size <= covering.NEAR
    assert len(orders.columns) < 2**16


def test_more_orders_make_fewer_steps() -> None:
    weight = matrix(64, 512, 0.05, 0)
    orders = orders_of(512, 8)
    one = Orders(1, orders.vectors[:0], orders.columns[:512])
    assert orders.number == 8
    assert len(cover(weight, orders, 8).steps) < 0.8 * len(cover(weight, one, 8).steps)


def most_taken(row: np.ndarray, orders: Orders, starts: np.ndarray, side: int) -> int:
    """How many weights of a row steps with these windows can take, one each: by flow of paths."""
    before = [0, *starts[:-1]] if side == 2 * VECTOR else starts
    reached = [
        {*orders.columns[a : a + side], *orders.columns[b : b + side]}
        for a, b in zip(before, starts, strict=True)
    ]
    taken: dict[int, int] = {}

    def place(column: int, seen: set[int]) -> bool:
        for step, columns in enumerate(reached):
            if column in columns and step not in seen:
                seen.add(step)
                if step not in taken or place(taken[step], seen):
                    taken[step] = column
                    return True
        return False

    return sum(place(int(column), set()) for column in np.flatnonzero(row))


@pytest.mark.parametrize("side", SIDES)
def test_no_step_can_be_done_without(side: int) -> None:
    weight, orders = matrix(side, 256, 0.08, 0), orders_of(256, side)
    starts = cover(weight, orders, side).starts

    def is_enough(windows: np.ndarray) -> bool:
        return all(
            np.count_nonzero(row) - most_taken(row, orders, windows, side) <= LEFT for row in weight
        )

    assert is_enough(starts)
    assert not any(is_enough(np.delete(starts, step)) for step in range(len(starts)))
