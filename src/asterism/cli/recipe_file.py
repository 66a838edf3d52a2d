"""Recipes: what a search on the command line is told, in a TOML file or in its own folder.

Owns the settings beside the search's options, and the reading of them. The folder of a search holds
its recipe: it can be resumed, or repeated, from the folder alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from asterism.errors import InputError
from asterism.search.options import SparsifyOptions, check_kind, meanings
from asterism.storage.atomic_files import read_json

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, kw_only=True)
class Recipe(SparsifyOptions):
    """The search's options, and where the model and the data come from.

    model    the function that returns the trained model: file.py:function or pkg.module:function
    data     the function that returns (train_loader, valid_loader), or a dict that may add loss,
             metric and higher_is_better
    weights  trained weights to load: .safetensors, .pt or .asterism
    seed     random seed
    device   where to train: cpu, cuda, mps; the model stays where it is if not given
    amp      compute the forward pass in bfloat16; weights stay float32
    """

    model: str
    data: str
    weights: str | None = None
    seed: int = 0
    device: str | None = None
    amp: bool | None = None

    def plain(self) -> dict[str, Any]:
        """As recipe.json; what earlier recipes did not have is left out where it is not given."""
        plain = asdict(self)
        return {
            name: each
            for name, each in plain.items()
            if name not in ("device", "amp") or each is not None
        }


MEANINGS = meanings(SparsifyOptions) | meanings(Recipe)
"""Of every setting by its name, for `asterism sparsify --help`."""


def make_recipe(settings: Mapping[str, Any], file: Path | None = None) -> Recipe:
    """A recipe from its settings; the file, if there is one, is named where a setting is wrong.

    >>> make_recipe({"model": "net.py:make", "data": "net.py:data", "max_drop": 0.2}).seed
    0
    """
    source = "the command" if file is None else str(file)
    given = {name: each for name, each in settings.items() if each is not None}
    kinds = {each.name: str(each.type) for each in fields(Recipe)}
    for name in given:
        if name not in kinds:
            raise InputError(f"{source} has an unknown key {name!r}; there are {', '.join(kinds)}")
    with _named(file):
        for name, value in given.items():
            check_kind(name, kinds[name], value)
    for name in REQUIRED:
        if name not in given:
            raise InputError(_how_to_give(name, file))
    with _named(file):
        return Recipe(**given)


REQUIRED = {
    "model": ("net.py:model", "the function that returns the model"),
    "data": ("net.py:loaders", "the function that returns (train_loader, valid_loader)"),
    "max_drop": (0.2, "how much worse than now the metric may be, in its own units"),
}


def _how_to_give(name: str, file: Path | None) -> str:
    """What to add where a setting is missing that has no default."""
    example, meaning = REQUIRED[name]
    if file is not None:
        line = f'{name} = "{example}"' if isinstance(example, str) else f"{name} = {example}"
        return f"{file} has no {name}: add a line {line}, {meaning}"
    option = example if name == "model" else f"--{name.replace('_', '-')} {example}"
    return f"the {name} is not given: add {option}, {meaning}"


@contextmanager
def _named(file: Path | None) -> Iterator[None]:
    """Errors of the block name the file that is to blame."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error) if file is None else f"{file}: {error}") from error


def read_recipe(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, or in the recipe.json of a search."""
    if path.suffix == ".json":
        found = read_json(path)
        if not isinstance(found, dict):
            raise InputError(f"{path} is no recipe")
        return found
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from error


def by_pattern(texts: Sequence[str], option: str) -> dict[str, str]:
    """PATTERN=VALUE, as it is given on the command line.

    >>> by_pattern(["conv*=0.5", "head=1"], "--density")
    {'conv*': '0.5', 'head': '1'}
    """
    parts = [text.rpartition("=") for text in texts]
    for text, (pattern, _, value) in zip(texts, parts, strict=True):
        if not pattern or not value:
            raise InputError(f"{option} is PATTERN=VALUE, as in 'conv*=0.5', not {text!r}")
    return {pattern: value for pattern, _, value in parts}


def numbers_by_pattern(texts: Sequence[str], option: str) -> dict[str, float]:
    """PATTERN=NUMBER, as it is given on the command line.

    >>> numbers_by_pattern(["conv*=0.5"], "--density")
    {'conv*': 0.5}
    """
    try:
        return {pattern: float(text) for pattern, text in by_pattern(texts, option).items()}
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{option} is a share of the weights: {error}") from error
