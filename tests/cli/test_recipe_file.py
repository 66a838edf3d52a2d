"""Recipes: the settings of a search in a file, and the options of the command that say the same."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from asterism.cli import app
from asterism.cli.commands.sparsify import sparsify
from asterism.cli.recipe_file import MEANINGS, Recipe, by_pattern, make_recipe, read_recipe
from asterism.errors import InputError
from support.paths import ROOT

LEAST = {"model": "net.py:model", "data": "net.py:loaders", "max_drop": 0.2}
FILE = Path("net.toml")


def test_every_setting_is_an_option_of_the_command_with_the_same_meaning() -> None:
    command = get_command(app).commands["sparsify"]  # type: ignore[attr-defined]
    helps = {param.name: getattr(param, "help", None) for param in command.params}
    for each in fields(Recipe):
        option = "density" if each.name == "densities" else each.name
        assert MEANINGS[each.name].replace("`", "")[1:] in str(helps[option])
        assert inspect.signature(sparsify).parameters[option].default is None, "the recipe decides"


def test_the_recipe_of_the_documentation_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "sparsify.md").read_text()
    lines = page[page.index('    model = "net.py') :].split("\n\nThe folder holds")[0].splitlines()
    path = tmp_path / "net.toml"
    path.write_text("\n".join(line.removeprefix("    ") for line in lines))
    recipe = make_recipe(read_recipe(path), path)
    assert recipe.densities == {"conv1": 0.5}
    assert set(recipe.penalties()) == {"conv*", "fc*"}  # type: ignore[arg-type]


def test_the_recipe_in_the_folder_of_an_earlier_search_is_one() -> None:
    begun = {
        "model": "tests/support/small.py:trained",
        "data": "tests/support/small.py:loaders",
        "max_drop": 2,
        "weights": None,
        "max_epochs": 20,
        "max_minutes": None,
        "epochs_per_cut": None,
        "reweighting": 0.2,
        "optimizer": None,
        "lr": None,
        "include": None,
        "exclude": ["4"],
        "penalty": {"4": "reweighted_l2"},
        "densities": None,
        "seed": 0,
    }
    assert make_recipe(begun).plain() == begun


def test_options_by_pattern_are_split_at_the_last_sign() -> None:
    assert by_pattern(["a=b*=0.5"], "--density") == {"a=b*": "0.5"}
    for text in ("0.5", "=0.5", "conv*="):
        with pytest.raises(InputError, match="--density is PATTERN=VALUE"):
            by_pattern([text], "--density")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_dorp": 1}, "net.toml has an unknown key 'max_dorp'"),
        ({"max_drop": "much"}, "net.toml: max_drop must be a number, found 'much'"),
        ({"max_epochs": True}, "net.toml: max_epochs must be a whole number, found True"),
        ({"max_epochs": 2.5}, "net.toml: max_epochs must be a whole number, found 2.5"),
        ({"exclude": ["head", 3]}, "net.toml: exclude must be a list of patterns"),
        ({"densities": {"fc*": "half"}}, "net.toml: densities must be numbers by pattern"),
        ({"seed": 0.5}, "net.toml: seed must be a whole number"),
        ({"model": 3}, "net.toml: model must be a string, found 3"),
        ({"model": None}, "net.toml has no model: add a line model = "),
    ],
)
def test_what_is_wrong_is_named_with_its_file(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_recipe({**LEAST, **settings}, FILE)


def test_on_the_command_line_a_wrong_value_needs_no_file(tmp_path: Path) -> None:
    arguments = ["sparsify", "a:b", "--data", "a:b", "--max-drop", "1", "--max-epochs", "1"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert str(result.exception) == "max_epochs must be at least 2, got 1"
