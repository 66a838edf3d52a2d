"""What a search has measured, and which networks are worth keeping."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.search.pareto import Point, TrialRecord, pareto
from support.paths import ROOT

SEARCHES = sorted((ROOT / "experiments" / "sparsify").glob("*.json"))

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


numbers = st.floats(allow_nan=False, allow_infinity=False)
records = st.builds(TrialRecord, metric=st.none() | numbers, density=numbers, seconds=numbers)


@given(records)
def test_a_record_survives_json(record):
    again = TrialRecord.from_json(json.loads(json.dumps(record.to_json())))
    assert again == record
    assert str(again) == str(record)


@pytest.mark.parametrize("path", SEARCHES, ids=lambda path: path.stem)
def test_the_records_that_are_kept_can_be_read(path):
    kept = json.loads(path.read_text())
    history = [TrialRecord.from_json(record) for record in kept["history"]]
    assert [record.to_json() for record in history] == kept["history"]
    assert history[0].trial == "dense"
    assert math.isclose(history[0].metric, kept["dense"]["metric"])
