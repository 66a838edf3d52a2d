"""What a search is told: the optimizer that a recipe makes, and one line for what is wrong."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from asterism.errors import InputError
from asterism.scaling.group_penalty import Group
from asterism.scaling.penalties import Focuss, ReweightedL1, ReweightedL2
from asterism.search.options import SearchRecipe, by_pattern, make_recipe

LEAST = {"model": "net.py:model", "data": "net.py:loaders", "max_drop": 0.2}


def made(recipe: SearchRecipe) -> torch.optim.Optimizer:
    make = recipe.make_optimizer()
    assert make is not None
    return make([nn.Parameter(torch.zeros(2))])


@pytest.mark.parametrize(("name", "kind"), [("sgd", torch.optim.SGD), ("adamw", torch.optim.AdamW)])
def test_the_learning_rate_is_the_optimizers(name: str, kind: type) -> None:
    default = made(make_recipe({**LEAST, "optimizer": name}, "x"))
    chosen = made(make_recipe({**LEAST, "optimizer": name, "lr": 0.0123}, "x"))
    assert type(default) is type(chosen) is kind
    assert chosen.param_groups[0]["lr"] == 0.0123 != default.param_groups[0]["lr"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("focuss", Focuss()),
        ({"name": "reweighted_l2", "tau": 0.5}, ReweightedL2(tau=0.5)),
        (
            {"conv*": {"name": "reweighted_l1", "by": "filter"}, "*": "reweighted_l2"},
            {"conv*": Group(ReweightedL1(), by="filter"), "*": ReweightedL2()},
        ),
    ],
)
def test_penalties_come_by_name_or_by_table_or_by_pattern(given: object, expected: object) -> None:
    assert make_recipe({**LEAST, "penalty": given}, "x").make_penalty() == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("magic", "unknown penalty 'magic': choose from reweighted_l1"),
        ({"fc*": {"tau": 0.1}}, "unknown penalty None"),
        ({"name": "reweighted_l1", "tua": 0.1}, "reweighted_l1 cannot be made so: .*tua"),
    ],
)
def test_a_wrong_penalty_is_one_line(given: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        make_recipe({**LEAST, "penalty": given}, "x").make_penalty()
    assert "\n" not in str(error.value)


def test_options_by_pattern_are_split_at_the_last_sign() -> None:
    assert by_pattern(["a=b*=0.5"], "--density") == {"a=b*": "0.5"}
    for text in ("0.5", "=0.5", "conv*="):
        with pytest.raises(InputError, match="--density is PATTERN=VALUE"):
            by_pattern([text], "--density")


def test_without_an_optimizer_the_search_chooses() -> None:
    assert make_recipe(LEAST, "x").make_optimizer() is None
    with pytest.raises(InputError, match="lr needs an optimizer: sgd or adamw"):
        make_recipe({**LEAST, "lr": 0.1}, "x").make_optimizer()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_dorp": 1}, "x has an unknown key 'max_dorp'"),
        ({"max_drop": "much"}, "x: max_drop must be int or float, found 'much'"),
        ({"max_epochs": True}, "x: max_epochs must be int, found True"),
        ({"exclude": ["head", 3]}, "x: exclude must be a list of patterns"),
        ({"densities": {"fc*": "half"}}, "x: densities must be numbers by pattern"),
        ({"densities": 0.5}, "x: densities must be dict, found 0.5"),
        ({"model": None}, "x lacks model"),
    ],
)
def test_what_is_wrong_is_named_with_its_source(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_recipe({**LEAST, **settings}, "x")
