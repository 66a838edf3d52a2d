"""Rows over seeds: one order for every table and page."""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.experiments.budgets import BUDGETS
from asterism.experiments.networks import MODELS, NETWORK_NAMES, weight_shapes
from asterism.experiments.results import METHOD_NAMES, method_rows


def result(method: str, seed: int = 0, **numbers: Any) -> Any:
    return {"method": method, "cut": "none", "seed": seed, **numbers}


def test_variants_are_ordered_by_their_number_the_densest_first() -> None:
    keys = ["magnitude@2", "magnitude@10", "reweighted_l1@0.5", "reweighted_l1@10", "dense"]
    assert [row.method for row in method_rows([result(key) for key in keys])] == [
        "dense",
        "reweighted_l1@10",
        "reweighted_l1@0.5",
        "magnitude@10",
        "magnitude@2",
    ]


def test_a_variant_need_not_be_a_number() -> None:
    rows = method_rows([result("own@wide"), result("own@3"), result("dns@wide")])
    assert [row.full_name for row in rows] == ["DNS @wide", "own@3", "own@wide"]


@given(
    st.lists(
        st.tuples(st.sampled_from([*METHOD_NAMES, "own", "own@2", "dns@0.5"]), st.integers(0, 12)),
        min_size=1,
        unique=True,
    ),
    st.randoms(),
)
def test_the_order_of_results_does_not_matter(runs: list[tuple[str, int]], random: Any) -> None:
    shuffled = random.sample(runs, len(runs))
    one, other = (method_rows([result(*run) for run in each]) for each in (runs, shuffled))
    assert one == other
    assert sorted((row.method, each["seed"]) for row in one for each in row.seeds) == sorted(runs)
    assert all(row.seeds == sorted(row.seeds, key=lambda each: each["seed"]) for row in one)


def test_a_row_is_the_mean_and_the_sample_spread_of_its_seeds() -> None:
    errors = [0.8, 1.0, 1.3]
    seeds = [
        result("lwc", seed, test_error_percent=error, nonzeros=10 * seed, density_percent=seed)
        for seed, error in enumerate(errors)
    ]
    (row,) = method_rows(seeds)
    assert (row.error_percent, row.spread) == pytest.approx((fmean(errors), stdev(errors)))
    assert (row.nonzeros, row.density_percent) == (10, 1)
    assert method_rows(seeds[:1])[0].spread is None


def test_every_network_of_a_budget_has_a_name() -> None:
    assert NETWORK_NAMES.keys() == MODELS.keys() >= {budget.model for budget in BUDGETS.values()}


@pytest.mark.parametrize("key", MODELS)
def test_the_shapes_are_those_of_the_network(key: str) -> None:
    weights = {name: p for name, p in MODELS[key]().named_parameters() if p.ndim > 1}
    expected = {name.removesuffix(".weight"): tuple(p.shape) for name, p in weights.items()}
    assert weight_shapes(key) == expected
