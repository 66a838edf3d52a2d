"""Names of weights, and the glob patterns that choose among them.

A pattern matches a weight by its own name or by its module's: `fc1.weight`, `fc1`, `encoder.*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from typing import TypeVar

from asterism.errors import InputError

T = TypeVar("T")


def owner(parameter: str) -> str:
    """'encoder.lstm.weight_ih_l0' → 'encoder.lstm': the module that a weight belongs to."""
    return parameter.rpartition(".")[0]


def layer(parameter: str) -> str:
    """'features.conv1.weight' → 'features.conv1': the layer that a weight is named after."""
    return parameter.removesuffix(".weight")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a weight's name, or its module's, matches one of the patterns."""
    return any(fnmatch(name, pattern) or fnmatch(owner(name), pattern) for pattern in patterns)


def lookup(table: Mapping[str, T], name: str, what: str) -> T:
    """The first entry of a table with a pattern that matches a weight.

    table  entries by pattern
    name   of the weight
    what   an entry is called in the error for a weight that no pattern matches
    """
    for pattern, entry in table.items():
        if matches(name, [pattern]):
            return entry
    raise InputError(f"no {what} is given for {name}: add a pattern that matches it, or '*'")


def check_patterns(patterns: Iterable[str], names: Iterable[str]) -> None:
    """An error for a pattern that matches none of the names: most likely it is misspelled."""
    known = list(names)
    for pattern in patterns:
        if not any(matches(name, [pattern]) for name in known):
            raise InputError(
                f"no layer matches the pattern {pattern!r}; there are {', '.join(known)}"
            )
