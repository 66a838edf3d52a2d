"""What `prune` is asked for: its arguments in one object, checked as far as they go by themselves.

Whether a request can be met depends on the weights: `masks` finds that out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import SupportsFloat

from torch import Tensor

from asterism.errors import InputError
from asterism.pruning.scores import SCORES


@dataclass(frozen=True)
class Request:
    """The arguments of `prune`, of which exactly one of the first four is given.

    density    the share of the weights that stays, or a mapping from patterns of names to shares
    threshold  the magnitude up to which weights go, or a mapping from patterns of names
    masks      by parameter name, true where a weight stays
    n_to_m     "2:4" and the like, or a mapping from patterns of names
    per_layer  whether the density is each layer's own
    score      one of `scores.SCORES`, by which a density over all layers compares weights
    at_most    whether the density is only an upper limit
    """

    density: float | Mapping[str, float] | None = None
    threshold: float | Mapping[str, float] | None = None
    masks: Mapping[str, Tensor] | None = None
    n_to_m: str | Mapping[str, str] | None = None
    per_layer: bool = False
    score: str = "lamp"
    at_most: bool = False

    def __post_init__(self) -> None:
        given = [self.density, self.threshold, self.masks, self.n_to_m]
        if sum(each is not None for each in given) != 1:
            raise InputError("prune takes exactly one of density, threshold, n_to_m and masks")
        if self.score not in SCORES:
            raise InputError(f"unknown score {self.score!r}: choose from {', '.join(SCORES)}")
        if self.at_most and self.density is None:
            raise InputError("at_most=True is about a density: give prune one, or leave it out")
        _check_numbers("density", self.density, such_as=0.1)
        _check_numbers("threshold", self.threshold, such_as=0.01)
        _check_not_empty("n_to_m", self.n_to_m, such_as="2:4")


def _check_numbers(name: str, value: object, such_as: float) -> None:
    """An error unless it is a number, a mapping to numbers, or not given."""
    _check_not_empty(name, value, such_as)
    for each in value.values() if isinstance(value, Mapping) else [value]:
        if each is not None and not isinstance(each, SupportsFloat):
            raise InputError(f"{name} must be a number, such as {such_as}, got {each!r}")


def _check_not_empty(name: str, value: object, such_as: object) -> None:
    if isinstance(value, Mapping) and not value:
        raise InputError(
            f"{name}={{}} names no layer: give patterns of names, as in"
            f" {name}={{'fc*': {such_as!r}}}, or one value for all layers"
        )
