"""The options of a search: one object for Python, TOML, the command line and config.json.

Owns each option's name, type, default, meaning and check. Torch is imported only where something
is made of an option: `asterism sparsify --help` reads the meanings from here.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from asterism.errors import InputError, one_line
from asterism.search.limits import Goal, SearchBudget

if TYPE_CHECKING:
    from asterism.scaling.penalties import Penalty
    from asterism.search.trial import MakeOptimizer

    NamedPenalty = Penalty | str | Mapping[str, Any]


@dataclass(frozen=True)
class SparsifyOptions:
    """The options of a search, checked. They have the same names wherever they are given.

    max_drop        how much worse than dense the metric may be, in its own units
    max_epochs      budget in epochs asked of `fit`; 60 if no budget is given
    max_minutes     budget in minutes of training; both budgets may be given
    epochs_per_cut  epochs of one trial; a tenth of the budget if not given
    reweighting     share of the budget for re-weighting before the first cut; 0 for none
    optimizer       what takes the steps: sgd, adamw, or in Python a function that makes an
                    optimizer from a list of parameters; chosen by trial if not given
    lr              learning rate of an optimizer that is given by its name
    include         patterns over layers: only these are made sparse
    exclude         patterns over layers: these are not touched
    penalty         what re-weighting lowers: reweighted_l1, reweighted_l2, focuss, or in Python
                    any penalty; one for all layers or by pattern, ReweightedL1(0.3) elsewhere
    densities       by pattern, the share of its weights that each such layer keeps in any case

    >>> SparsifyOptions(max_drop=0.2, max_epochs=2.5)
    Traceback (most recent call last):
    asterism.errors.InputError: max_epochs must be a whole number, found 2.5
    """

    max_drop: float
    max_epochs: int | None = None
    max_minutes: float | None = None
    epochs_per_cut: int | None = None
    reweighting: float = 0.2
    optimizer: str | MakeOptimizer | None = None
    lr: float | None = None
    include: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    penalty: NamedPenalty | Mapping[str, NamedPenalty] | None = None
    densities: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            plain = check_kind(each.name, str(each.type), getattr(self, each.name))
            object.__setattr__(self, each.name, plain)
        self.goal(higher_is_better=True)
        self.budget()
        if not 0 <= self.reweighting < 1:
            raise InputError(
                f"reweighting is a share of the budget in [0, 1), got {self.reweighting}"
            )
        if self.lr is not None and not 0 < self.lr < math.inf:
            raise InputError(f"lr must be positive and finite, got {self.lr}")

    def goal(self, higher_is_better: bool) -> Goal:
        """The tolerance, for a metric of that direction."""
        return Goal(self.max_drop, higher_is_better)

    def budget(self) -> SearchBudget:
        """What the search may spend."""
        return SearchBudget(self.max_epochs, self.max_minutes, self.epochs_per_cut)

    def optimizers(self) -> list[MakeOptimizer]:
        """What makes the inner optimizer; several where the search is to choose."""
        from asterism.search.trial import OPTIMIZERS

        if callable(self.optimizer) and self.lr is None:
            return [self.optimizer]
        if self.lr is not None and not isinstance(self.optimizer, str):
            raise InputError("lr needs an optimizer: sgd or adamw")
        if self.optimizer is None:
            return list(OPTIMIZERS.values())
        choices = ", ".join(OPTIMIZERS)
        if not isinstance(self.optimizer, str):
            raise InputError(
                f"optimizer must be one of {choices}, or a function that makes one from a list of"
                f" parameters, found {type(self.optimizer).__name__}"
            )
        if self.optimizer not in OPTIMIZERS:
            raise InputError(f"unknown optimizer {self.optimizer!r}: choose from {choices}")
        make = OPTIMIZERS[self.optimizer]
        return [make if self.lr is None else partial(make, lr=self.lr)]

    def penalties(self) -> Penalty | Mapping[str, Penalty] | None:
        """What the penalty option names; None leaves the choice to the search."""
        if isinstance(self.penalty, Mapping) and "name" not in self.penalty:
            return {pattern: make_penalty(each) for pattern, each in self.penalty.items()}
        return None if self.penalty is None else make_penalty(self.penalty)

    def config(self) -> dict[str, Any]:
        """Its part of config.json. The optimizer, which may be any function, is not in it."""
        from asterism.search.trial import complete
        from asterism.storage.config import describe

        return {
            "max_drop": self.max_drop,
            "budget": asdict(self.budget()),
            "reweighting": self.reweighting,
            "include": self.include,
            "exclude": self.exclude,
            "penalty": describe(complete(self.penalties())),
            "densities": self.densities or {},
        }


def meanings(options: type) -> dict[str, str]:
    """The columns of a docstring: each option by name, and what it means.

    >>> meanings(SparsifyOptions)["lr"]
    'learning rate of an optimizer that is given by its name'
    """
    columns = re.compile(r"^(\w+) {2,}(\S.*(?:\n {2,}\S.*)*)", re.MULTILINE)
    found = columns.findall(inspect.cleandoc(options.__doc__ or ""))
    return {name: " ".join(text.split()) for name, text in found}


# ---------------------------------------------------------------------- kinds of values


@dataclass(frozen=True)
class Kind:
    """What the values of an option are: in words, as a test, and in their plain form."""

    expected: str
    fits: Callable[[Any], bool]
    plain: Callable[[Any], Any]


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _are_patterns(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)


def _are_numbers_by_pattern(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and all(isinstance(pattern, str) for pattern in value)
        and all(map(_is_number, value.values()))
    )


KINDS = {
    "float": Kind("a number", _is_number, float),
    "int": Kind("a whole number", _is_whole, int),
    "bool": Kind("true or false", lambda value: isinstance(value, bool), bool),
    "str": Kind("a string", lambda value: isinstance(value, str), str),
    "Sequence[str]": Kind("a list of patterns", _are_patterns, list),
    "Mapping[str, float]": Kind("numbers by pattern", _are_numbers_by_pattern, dict),
}
"""By the annotation of the field; penalties and optimizers are checked where they are made."""


def check_kind(name: str, annotation: str, value: Any) -> Any:
    """A value in its plain form, or an error that names the option.

    >>> check_kind("include", "Sequence[str] | None", ("conv*", "fc1"))
    ['conv*', 'fc1']
    """
    required = annotation.removesuffix(" | None")
    if required not in KINDS or (value is None and required != annotation):
        return value
    kind = KINDS[required]
    if not kind.fits(value):
        raise InputError(f"{name} must be {kind.expected}, found {value!r}")
    return kind.plain(value)


def make_penalty(given: NamedPenalty) -> Penalty:
    """A penalty by its name, or from a table of its name, its constants and `by` for groups.

    >>> make_penalty({"name": "reweighted_l1", "tau": 0.1, "by": "filter"})
    Group(penalty=ReweightedL1(tau=0.1, relative=True), by='filter')
    """
    from asterism.scaling.group_penalty import Group
    from asterism.scaling.penalties import Focuss, ReweightedL1, ReweightedL2

    if not isinstance(given, str | Mapping):
        return given
    known: dict[str, Callable[..., Penalty]] = {
        "reweighted_l1": ReweightedL1,
        "reweighted_l2": ReweightedL2,
        "focuss": Focuss,
    }
    constants: dict[str, Any] = {"name": given} if isinstance(given, str) else dict(given)
    name, by = constants.pop("name", None), constants.pop("by", None)
    if name not in known:
        raise InputError(f"unknown penalty {name!r}: choose from {', '.join(known)}")
    try:
        penalty = known[name](**constants)
    except TypeError as error:
        raise InputError(f"the penalty {name} cannot be made: {one_line(error)}") from error
    return penalty if by is None else Group(penalty, by)
