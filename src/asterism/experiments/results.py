"""The records that runs leave, and the rows that they make over their seeds.

Owns the shape of a record, the names of methods, and the one order of rows for every table and
page. The numbers come from `training` and `jobs`; layout is the matter of those who show them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, stdev
from typing import Any, TypedDict


class Measurement(TypedDict):
    """A network on the validation images, in numbers."""

    t: int
    validation_error_percent: float
    nonzeros: int
    layers: dict[str, int]
    density_percent: float
    kurtosis: dict[str, float]


class EpochRecord(Measurement):
    """One epoch of training and the network after it."""

    stage: str
    epoch: int
    loss: float
    seconds: float


class PhaseRecord(EpochRecord):
    """An entry of history.json: an epoch, and in which phase of its method it was."""

    phase: int


History = list[EpochRecord]


class _Result(TypedDict):
    method: str
    seed: int
    cut: str
    layers: dict[str, float]
    density_percent: float
    nonzeros: int
    test_error_percent: float
    validation_error_percent: float | None  # None where these images were trained on
    epochs: int
    seconds: float
    config: dict[str, Any]


class RunResult(_Result, total=False):
    """What came of one method and one seed: result.json, and an entry of results.json."""

    versions: dict[str, str]
    date: str
    commit: str | None


METHOD_NAMES = {
    "dense": "Dense",
    "reweighted_l1": "Re-weighted ℓ1",
    "reweighted_l2": "Re-weighted ℓ2",
    "focuss": "FOCUSS (p = 0.5)",
    "ast_l1": "AST itself (ℓ1, lam = 0)",
    "gradual_l1": "Gradual re-weighted ℓ1",
    "slowly_l1": "Gradual re-weighted ℓ1, slowly",
    "sharper_l1": "Gradual re-weighted ℓ1, tau 0.1",
    "gradual_l2": "Gradual re-weighted ℓ2",
    "gradual_focuss": "Gradual FOCUSS (p = 0.5)",
    "dns": "DNS",
    "lwc": "LWC",
    "rigl": "RigL",
    "magnitude": "Magnitude pruning",
    "record": "Re-weighted ℓ1, slowly",
    "regrown": "Re-weighted ℓ1, regrown",
    "front": "… 12 rounds, all images",
    "long": "… 24 rounds, all images",
}
"""In the order of rows. Other methods follow under their own keys."""


@dataclass(frozen=True)
class MethodRow:
    """One method and cut over its seeds.

    What follows an @ in a method's key tells variants of one method apart: `magnitude@0.5`.
    """

    method: str
    cut: str
    seeds: list[RunResult]

    @property
    def name(self) -> str:
        """The method, whichever variant it is."""
        return METHOD_NAMES.get(self.method.partition("@")[0], self.method)

    @property
    def full_name(self) -> str:
        """The method and its variant."""
        known = self.method.partition("@")[0] in METHOD_NAMES
        variant = self.method.partition("@")[2]
        return f"{self.name} @{variant}" if known and variant else self.name

    @property
    def table_name(self) -> str:
        """The method, and its variant where that is no density: of that a table has a column."""
        return self.name if _number(self.method.partition("@")[2]) else self.full_name

    @property
    def nonzeros(self) -> float:
        return fmean(result["nonzeros"] for result in self.seeds)

    @property
    def density_percent(self) -> float:
        return fmean(result["density_percent"] for result in self.seeds)

    @property
    def error_percent(self) -> float:
        return fmean(self._errors)

    @property
    def spread(self) -> float | None:
        """The sample standard deviation of the test error; None of a single seed."""
        return stdev(self._errors) if len(self.seeds) > 1 else None

    @property
    def _errors(self) -> list[float]:
        return [result["test_error_percent"] for result in self.seeds]


def method_rows(results: Sequence[RunResult]) -> list[MethodRow]:
    """The rows of these results: methods in the order of their names, the densest variant first.

    >>> def result(method):
    ...     return {"method": method, "cut": "none", "seed": 0}
    >>> found = method_rows([result("dense"), result("magnitude@2"), result("magnitude@10")])
    >>> [row.full_name for row in found]
    ['Dense', 'Magnitude pruning @10', 'Magnitude pruning @2']
    """
    ordered = sorted(results, key=_order)
    return [
        MethodRow(method, cut, list(seeds))
        for (method, cut), seeds in groupby(ordered, key=lambda each: (each["method"], each["cut"]))
    ]


def _order(result: Mapping[str, Any]) -> tuple[int, str, float, str, str, int]:
    method = result["method"]
    name, _, variant = method.partition("@")
    rank = list(METHOD_NAMES).index(name) if name in METHOD_NAMES else len(METHOD_NAMES)
    return rank, name, -_number(variant), method, result["cut"], result["seed"]


def _number(variant: str) -> float:
    """The share or number of weights that a variant is called after, if it is."""
    try:
        return float(variant)
    except ValueError:
        return 0.0
