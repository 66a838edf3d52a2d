"""What a search on the command line is told, from a TOML file, from options, or from its folder.

Owns the names and types of the settings, and a clear line for each that is wrong. The folder of a
search holds its recipe too, so that it can be resumed, or repeated, from the folder alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from asterism.errors import InputError, one_line
from asterism.scaling.group_penalty import Group
from asterism.scaling.penalties import Focuss, Penalty, ReweightedL1, ReweightedL2
from asterism.search.trial import OPTIMIZERS, MakeOptimizer
from asterism.storage.atomic_files import read_json

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class SearchRecipe:
    """The settings of `asterism sparsify`; the same names in TOML, as options and in Python."""

    model: str
    data: str
    max_drop: float
    weights: str | None = None
    max_epochs: int | None = None
    max_minutes: float | None = None
    epochs_per_cut: int | None = None
    reweighting: float = 0.2
    optimizer: str | None = None
    lr: float | None = None
    include: list[str] | None = None
    exclude: list[str] | None = None
    penalty: str | dict[str, Any] | None = None
    densities: dict[str, float] | None = None
    seed: int = 0

    def make_optimizer(self) -> MakeOptimizer | None:
        """None leaves the choice to the search."""
        if self.optimizer is None:
            if self.lr is not None:
                raise InputError("lr needs an optimizer: sgd or adamw")
            return None
        if self.optimizer not in OPTIMIZERS:
            choices = ", ".join(OPTIMIZERS)
            raise InputError(f"unknown optimizer {self.optimizer!r}: choose from {choices}")
        make = OPTIMIZERS[self.optimizer]
        return make if self.lr is None else partial(make, lr=self.lr)

    def make_penalty(self) -> Penalty | dict[str, Penalty] | None:
        """None leaves the choice to the search."""
        if self.penalty is None:
            return None
        if isinstance(self.penalty, str) or "name" in self.penalty:
            return make_penalty(self.penalty)
        return {pattern: make_penalty(each) for pattern, each in self.penalty.items()}

    def plain(self) -> dict[str, Any]:
        return asdict(self)


KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(["model", "data", "weights", "optimizer"], (str,)),
    **dict.fromkeys(["max_drop", "max_minutes", "reweighting", "lr"], (int, float)),
    **dict.fromkeys(["max_epochs", "epochs_per_cut", "seed"], (int,)),
    **dict.fromkeys(["include", "exclude"], (list,)),
    "penalty": (str, dict),
    "densities": (dict,),
}

PENALTIES: dict[str, Callable[..., Penalty]] = {
    "reweighted_l1": ReweightedL1,
    "reweighted_l2": ReweightedL2,
    "focuss": Focuss,
}


def make_penalty(given: Any) -> Penalty:
    """A penalty by its name, or from a table of its name, its constants and `by` for groups.

    >>> make_penalty({"name": "reweighted_l1", "tau": 0.1, "by": "filter"})
    Group(penalty=ReweightedL1(tau=0.1, relative=True), by='filter')
    """
    constants = dict(given) if isinstance(given, dict) else {"name": given}
    name, by = constants.pop("name", None), constants.pop("by", None)
    if name not in PENALTIES:
        raise InputError(f"unknown penalty {name!r}: choose from {', '.join(PENALTIES)}")
    try:
        penalty = PENALTIES[name](**constants)
    except TypeError as error:
        raise InputError(f"the penalty {name} cannot be made so: {one_line(error)}") from error
    return penalty if by is None else Group(penalty, by)


def make_recipe(settings: Mapping[str, Any], source: str) -> SearchRecipe:
    """A recipe from its settings; `source` is named where one of them is wrong.

    >>> make_recipe({"model": "net.py:make", "data": "net.py:data", "max_drop": 0.2}, "x").seed
    0
    """
    names = [each.name for each in fields(SearchRecipe)]
    for name, value in settings.items():
        if name not in names:
            raise InputError(f"{source} has an unknown key {name!r}; there are {', '.join(names)}")
        if value is not None and (not isinstance(value, KINDS[name]) or isinstance(value, bool)):
            expected = " or ".join(kind.__name__ for kind in KINDS[name])
            raise InputError(f"{source}: {name} must be {expected}, found {value!r}")
        if isinstance(value, list) and not all(isinstance(each, str) for each in value):
            raise InputError(f"{source}: {name} must be a list of patterns, found {value!r}")
        numbers = value.values() if name == "densities" and isinstance(value, dict) else ()
        if not all(map(_is_number, numbers)):
            raise InputError(f"{source}: densities must be numbers by pattern, found {value!r}")
    for name in ("model", "data", "max_drop"):
        if settings.get(name) is None:
            raise InputError(f"{source} lacks {name}")
    return SearchRecipe(**{name: value for name, value in settings.items() if value is not None})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
