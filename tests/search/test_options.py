"""The options of a search: what each accepts, what it makes, and one line for what is wrong."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from asterism.errors import InputError
from asterism.scaling.group_penalty import Group
from asterism.scaling.penalties import Focuss, ReweightedL1, ReweightedL2
from asterism.search.options import KINDS, SparsifyOptions, meanings


def options(**given: object) -> SparsifyOptions:
    return SparsifyOptions(**{"max_drop": 0.2, **given})  # type: ignore[arg-type]


def made(given: SparsifyOptions) -> torch.optim.Optimizer:
    (make,) = given.optimizers()
    return make([nn.Parameter(torch.zeros(2))])


@pytest.mark.parametrize(("name", "kind"), [("sgd", torch.optim.SGD), ("adamw", torch.optim.AdamW)])
def test_the_learning_rate_is_the_optimizers(name: str, kind: type) -> None:
    default, chosen = made(options(optimizer=name)), made(options(optimizer=name, lr=0.0123))
    assert type(default) is type(chosen) is kind
    assert chosen.param_groups[0]["lr"] == 0.0123 != default.param_groups[0]["lr"]


def test_without_an_optimizer_the_search_has_a_choice() -> None:
    assert len(options().optimizers()) > 1
    with pytest.raises(InputError, match="lr needs an optimizer: sgd or adamw"):
        options(lr=0.1).optimizers()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("focuss", Focuss()),
        (Focuss(), Focuss()),
        ({"name": "reweighted_l2", "tau": 0.5}, ReweightedL2(tau=0.5)),
        (
            {"conv*": {"name": "reweighted_l1", "by": "filter"}, "*": "reweighted_l2"},
            {"conv*": Group(ReweightedL1(), by="filter"), "*": ReweightedL2()},
        ),
        ({"fc*": ReweightedL2(0.5), "*": "focuss"}, {"fc*": ReweightedL2(0.5), "*": Focuss()}),
    ],
)
def test_penalties_come_by_name_or_by_table_or_by_pattern(given: object, expected: object) -> None:
    assert options(penalty=given).penalties() == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("magic", "unknown penalty 'magic': choose from reweighted_l1"),
        ({"fc*": {"tau": 0.1}}, "unknown penalty None"),
        ({"name": "reweighted_l1", "tua": 0.1}, "reweighted_l1 cannot be made: .*tua"),
    ],
)
def test_a_wrong_penalty_is_one_line(given: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        options(penalty=given).penalties()
    assert "\n" not in str(error.value)


WRONG = {
    "float": [None, "much", True, [1.0], 1j],
    "int": [None, 2.5, 2.0, "3", True],
    "Sequence[str]": ["conv*", ["head", 3], {"conv*": 1}],
    "Mapping[str, float]": [0.5, {"fc*": "half"}, {3: 0.5}, ["fc*=0.5"]],
}


@pytest.mark.parametrize("name", [each.name for each in fields(SparsifyOptions)])
def test_a_value_of_a_wrong_type_is_one_line_that_names_the_option(name: str) -> None:
    annotation = {each.name: str(each.type) for each in fields(SparsifyOptions)}[name]
    required = annotation.removesuffix(" | None")
    if required not in KINDS:
        assert name in ("optimizer", "penalty"), f"nothing checks {name}"
        return
    for value in WRONG[required]:
        if value is None and required != annotation:
            continue
        with pytest.raises(InputError, match=f"{name} must be {KINDS[required].expected}, found"):
            options(**{name: value})


@given(st.integers(2, 10**6), st.floats(0, 1e6))
def test_numbers_of_numpy_are_plain_numbers(epochs: int, drop: float) -> None:
    given = options(max_drop=np.float64(drop), max_epochs=np.int64(epochs))
    assert given == options(max_drop=drop, max_epochs=epochs)
    assert type(given.max_drop) is float
    assert type(given.max_epochs) is int


def test_every_option_has_a_meaning() -> None:
    assert list(meanings(SparsifyOptions)) == [each.name for each in fields(SparsifyOptions)]


def test_the_options_start_without_torch() -> None:
    """`asterism --help` reads the meanings."""
    program = "import sys, asterism.search.options; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
