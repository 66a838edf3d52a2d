"""Tolerance and budget: pure arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import InputError
from asterism.search.limits import Goal, SearchBudget


def test_the_edge_of_the_tolerance_holds_in_floating_point():
    assert 98.0 - 97.8 > 0.2
    assert Goal(0.2).holds(98.0, 97.8)
    assert not Goal(0.2).holds(98.0, 97.79)
    assert Goal(0.0, higher_is_better=False).holds(0.8, 0.8)
    assert not Goal(100.0).holds(98.0, math.nan)


def test_a_ruin_that_is_better_is_an_error():
    with pytest.raises(InputError, match="set higher_is_better=False"):
        Goal(0.2, higher_is_better=True).check(dense=0.8, ruined=90.0)
    Goal(0.2, higher_is_better=False).check(dense=0.8, ruined=90.0)
    Goal(0.2).check(dense=98.0, ruined=math.nan)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.booleans())
def test_a_ruin_that_is_no_worse_is_an_error_whatever_the_tolerance(dense, gain, drop, higher):
    ruined = dense + gain if higher else dense - gain
    with pytest.raises(InputError, match="with hardly a weight left the metric is"):
        Goal(drop, higher).check(dense, ruined)


@given(st.integers(2, 500), st.integers(1, 50))
def test_an_epoch_budget_is_never_exceeded_and_hardly_left(total, wanted):
    budget, spent = SearchBudget(max_epochs=total), 0
    while epochs := budget.next_trial(spent, seconds=1.0, wanted=wanted):
        assert 1 <= epochs <= wanted
        spent += epochs
    assert total - max(1, wanted // 2) < spent <= total


def test_minutes_are_turned_into_epochs_once_these_are_timed():
    budget = SearchBudget(max_minutes=1.0)
    assert budget.trial(epochs=1, seconds=1.0) == 6
    assert budget.next_trial(epochs=54, seconds=54.0, wanted=6) == 6
    assert budget.next_trial(epochs=58, seconds=58.0, wanted=6) == 0
    assert SearchBudget(max_epochs=20, max_minutes=1.0).trial(epochs=1, seconds=1.0) == 2
