"""What came of a run, in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from asterism.report.headline import headline
from asterism.report.layers import Size
from asterism.report.reading.account import Account, Outcome
from asterism.search.pareto import TrialRecord

DENSE = Outcome("dense", 10_000, 100.0, 98.0, role="dense", within=True)
BEST = Outcome("chosen", 1_075, 10.75, 97.3, role="chosen", within=True)
TRIAL = TrialRecord("dense", 1.0, 10_000, 98.0, True, 0, 0.0)
SEARCH = Account("net", [], "Accuracy", [DENSE, BEST], [], higher_is_better=True, trials=[TRIAL])
SIZE = Size(40_000, 5_621, "small")


def test_weights_size_and_points():
    assert headline(SEARCH, SIZE) == "9.3× fewer weights, 5.6 kB, 0.7 points of accuracy lost"


@pytest.mark.parametrize(
    ("score", "end"), [(98.0, "no accuracy lost"), (98.25, "0.25 points of accuracy gained")]
)
def test_nothing_lost_and_something_gained(score, end):
    account = replace(SEARCH, outcomes=[DENSE, replace(BEST, score=score)])
    assert headline(account, SIZE).endswith(end)


def test_a_metric_of_unknown_units_is_told_as_it_is():
    losses = [replace(DENSE, score=1.25), replace(BEST, score=1.5)]
    account = replace(SEARCH, outcomes=losses, higher_is_better=False, in_points=False)
    assert headline(account, None) == "9.3× fewer weights, metric 1.5 instead of 1.25"


def test_a_search_without_success():
    account = replace(SEARCH, outcomes=[DENSE, replace(BEST, role="front", within=False)])
    assert headline(account, SIZE) == "Nothing sparser held the tolerance"


def test_a_table_has_the_row_with_the_fewest_weights():
    rows = [
        Outcome("Dense", 430_500, 100.0, 0.8, role="dense"),
        Outcome("Re-weighted ℓ1", 2_755, 0.64, 0.99),
        Outcome("LWC", 32_714, 7.6, 0.59),
    ]
    found = headline(Account("net", [], "Test error (%)", rows, []), None)
    assert found == "Re-weighted ℓ1: 156× fewer weights, test error 0.99 % (dense 0.80 %)"
    assert headline(Account("net", [], "Test error (%)", rows[1:], []), None) == ""
