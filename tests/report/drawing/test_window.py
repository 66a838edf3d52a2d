"""What is worth seeing stays in sight, however bad the failures are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asterism.report.drawing.window import window
from asterism.report.reading.account import Account, Outcome
from asterism.search.pareto import TrialRecord

SCORES = st.floats(-1e3, 1e3, allow_nan=False)


def account(scores: list[float], drop: float, higher: bool) -> Account:
    tolerance = scores[0] - drop if higher else scores[0] + drop
    held = [score >= tolerance if higher else score <= tolerance for score in scores]
    outcomes = [
        Outcome("point", 10.0, 1.0, score, within=within, role="tried" if at else "dense")
        for at, (score, within) in enumerate(zip(scores, held, strict=True))
    ]
    trials = [TrialRecord("dense", 1.0, 10, scores[0], True, 0, 0.0)]
    return Account(
        "net", [], "", outcomes, [], tolerance=tolerance, higher_is_better=higher, trials=trials
    )


@given(st.lists(SCORES, min_size=1, max_size=8), st.floats(0, 10), st.booleans())
def test_all_within_tolerance_is_inside_and_failures_do_not_press_it_together(scores, drop, higher):
    made = account(scores, drop, higher)
    shown = window(made)
    assert shown.bottom < shown.top
    assert made.tolerance is not None
    assert shown.bottom < made.tolerance < shown.top
    good = [each.score for each in made.outcomes if each.within]
    assert all(shown.clip(score) == score for score in good)
    # Whatever failed, what is within the tolerance has more than half of the height.
    reach = max(abs(score - made.tolerance) for score in good)
    if reach > 1e-3:
        assert reach > 0.5 * (shown.top - shown.bottom)


def test_failures_are_at_the_edge_on_the_side_of_worse():
    shown = window(account([98.0, 97.5, 9.8], 1.0, higher=True))
    assert shown.clip(9.8) == shown.bottom > 90
    assert shown.arrow == "v"
    shown = window(account([1.2, 1.25, 80.0], 0.1, higher=False))
    assert shown.clip(80.0) == shown.top < 2
    assert shown.arrow == "^"


def test_an_error_far_beyond_the_others_does_not_rule_the_axis():
    rows = [Outcome("row", 10, 1.0, error) for error in (0.8, 1.0, 1.1, 90.0)]
    shown = window(Account("net", [], "", rows, []))
    assert shown.bottom == 0
    assert 1.1 < shown.top < 2
