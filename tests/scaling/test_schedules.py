import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import InputError
from asterism.scaling.schedules import (
    AllLayers,
    ChartrandYin,
    ConstantTau,
    GeometricTau,
    InTurn,
    Schedule,
    constant,
    cubic,
    geometric,
    stepwise,
    warmup_cosine,
)

LENET = ["conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"]

# ---------------------------------------------------------------------- which layers


def test_all_layers_are_all_layers_each_time() -> None:
    assert [AllLayers().at(t, LENET) for t in (1, 2, 7)] == [LENET] * 3


def test_eight_iterations_in_turn_are_twice_each_of_four_layers() -> None:
    assert [InTurn().at(t, LENET) for t in range(1, 9)] == [[name] for name in LENET * 2]


def test_a_given_order_is_followed_round_and_round() -> None:
    turns = InTurn(("fc2", "conv*", "fc1.weight"))
    expected = [LENET[3:], LENET[:2], LENET[2:3]]
    assert [turns.at(t, LENET) for t in range(1, 7)] == expected * 2


def test_a_pattern_may_name_the_module_of_any_weight() -> None:
    names = ["lstm.weight_ih_l0", "lstm.weight_hh_l0", "attention.in_proj_weight", "fc.weight"]
    turns = InTurn(("lstm", "attention", "fc"))
    assert [turns.at(t, names) for t in (1, 2, 3)] == [names[:2], names[2:3], names[3:]]


def test_a_pattern_without_a_layer_is_named_at_once_beside_the_layers_there_are() -> None:
    with pytest.raises(InputError, match=r"no layer matches the pattern 'conv3'; there are conv1"):
        InTurn(("conv1", "conv3")).at(1, LENET)


# ---------------------------------------------------------------------- how tau anneals


def test_constant_tau_stays() -> None:
    assert ConstantTau().next(0.3, 0.0) == 0.3


def test_geometric_tau_falls_by_its_factor_down_to_the_floor() -> None:
    anneal, taus = GeometricTau(0.1, floor=0.005), [1.0]
    for _ in range(4):
        taus.append(anneal.next(taus[-1], change=1.0))
    assert taus == pytest.approx([1, 0.1, 0.01, 0.005, 0.005])


def test_chartrand_and_yin_wait_until_the_iterate_has_settled() -> None:
    anneal = ChartrandYin(forced=False)
    limit = math.sqrt(0.04) / 100
    assert anneal.next(0.04, limit * 1.01) == 0.04
    assert anneal.next(0.04, limit * 0.99) == pytest.approx(0.004)


def test_chartrand_and_yin_when_forced_do_not_wait() -> None:
    assert ChartrandYin().next(0.04, change=1e9) == pytest.approx(0.004)


@pytest.mark.parametrize("anneal", [ChartrandYin(floor=1e-3), GeometricTau(0.1, floor=1e-3)])
def test_tau_ends_on_the_floor_and_is_never_raised_to_it(anneal: Any) -> None:
    assert anneal.next(2e-3, 0.0) == 1e-3
    assert anneal.next(1e-3, 0.0) == 1e-3
    assert anneal.next(1e-4, 0.0) == 1e-4


def test_the_change_is_asked_for_only_where_it_matters() -> None:
    asked = [ConstantTau(), GeometricTau(), ChartrandYin(), ChartrandYin(forced=False)]
    assert [anneal.needs_change for anneal in asked] == [False, False, False, True]


# ---------------------------------------------------------------------- values over a stage

KNOWN: list[tuple[Schedule, tuple[float, float, float]]] = [
    (constant(3.0), (3, 3, 3)),
    (geometric(1.0, 0.01), (1, 0.1, 0.01)),
    (geometric(0.02, 2.0), (0.02, 0.2, 2)),
    (cubic(1.0, 0.2), (1, 0.3, 0.2)),
    (stepwise([3, 1, 2]), (3, 1, 2)),
    (stepwise([3, 1]), (3, 1, 1)),
    (warmup_cosine(2.0, warmup=0.0, final=1.0), (2, 1.5, 1)),
    (warmup_cosine(2.0, warmup=0.5), (0, 2, 0)),
]


@pytest.mark.parametrize(("schedule", "values"), KNOWN)
def test_values_at_the_start_half_way_and_at_the_end(
    schedule: Schedule, values: tuple[float, float, float]
) -> None:
    assert [schedule(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx(values)


@pytest.mark.parametrize("make", [geometric, cubic])
@given(end=st.floats(1e-6, 1))
def test_a_fall_from_one_begins_and_ends_exactly(
    make: Callable[[float, float], Schedule], end: float
) -> None:
    fall = make(1.0, end)
    assert (fall(0.0), fall(1.0)) == (1.0, end)


@pytest.mark.parametrize("make", [geometric, cubic])
@given(
    ends=st.tuples(st.floats(0.01, 10), st.floats(0.01, 10)),
    steps=st.lists(st.floats(0, 1), min_size=2),
)
def test_monotone_between_the_ends(
    make: Callable[[float, float], Schedule], ends: tuple[float, float], steps: list[float]
) -> None:
    values = [make(*ends)(progress) for progress in sorted(steps)]
    sign = 1 if ends[1] >= ends[0] else -1
    assert all(sign * (after - before) >= -1e-12 for before, after in pairwise(values))


@given(st.floats(0.01, 0.9), st.lists(st.floats(0, 1), min_size=2))
def test_warmup_rises_then_falls_and_is_continuous(warmup: float, steps: list[float]) -> None:
    schedule = warmup_cosine(1.0, warmup, final=0.1)
    rising = [schedule(each * warmup * 0.999) for each in sorted(steps)]
    falling = [schedule(warmup + each * (1 - warmup)) for each in sorted(steps)]
    assert rising == sorted(rising)
    assert all(after <= before + 1e-12 for before, after in pairwise(falling))
    assert schedule(warmup * (1 - 1e-9)) == pytest.approx(schedule(warmup)) == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_each_step_has_an_equal_share(values: list[float]) -> None:
    shares = 1000 // len(values)
    seen = [stepwise(values)((k + 0.5) / (shares * len(values))) for k in range(shares)]
    assert set(seen) == {values[0]}
    assert stepwise(values)(1.0) == values[-1]


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GeometricTau(0.0), r"GeometricTau needs 0 < factor ≤ 1.*factor=0\.0"),
        (lambda: GeometricTau(1.5), r"GeometricTau needs 0 < factor ≤ 1.*factor=1\.5"),
        (lambda: GeometricTau(0.5, 0.0), r"floor > 0, got .*floor=0\.0"),
        (lambda: GeometricTau(0.5, math.nan), "floor > 0, got .*floor=nan"),
        (lambda: ChartrandYin(0.0), r"ChartrandYin needs floor > 0, got 0\.0"),
        (lambda: ChartrandYin(math.nan), "ChartrandYin needs floor > 0, got nan"),
        (lambda: geometric(0.0, 1.0), r"positive ends, got 0\.0 and 1\.0"),
        (lambda: geometric(1.0, -1.0), r"positive ends, got 1\.0 and -1\.0"),
        (lambda: geometric(1.0, math.nan), r"positive ends, got 1\.0 and nan"),
        (lambda: stepwise([]), "stepwise schedule needs at least one value"),
        (lambda: warmup_cosine(1.0, 1.0), r"warmup_cosine needs 0 ≤ warmup < 1, got 1\.0"),
        (lambda: warmup_cosine(1.0, -0.1), r"warmup_cosine needs 0 ≤ warmup < 1, got -0\.1"),
    ],
)
def test_impossible_settings_are_refused_at_once(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
