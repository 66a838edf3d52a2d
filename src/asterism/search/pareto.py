"""What a search has measured: networks, a record of each trial, and the front of the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from asterism.storage.packing import Packed, unpack


@dataclass(frozen=True, eq=False)
class Point:
    """One network that was measured.

    density   the share of the weights made sparse that is not zero
    nonzeros  their number
    metric    on the validation data, as `evaluate` gave it
    epochs    spent when it was found
    packed    its weights, as `asterism.storage.packing` holds them
    """

    density: float
    nonzeros: int
    metric: float
    epochs: int
    packed: Packed

    def state_dict(self) -> dict[str, Any]:
        """Its weights, for `model.load_state_dict`."""
        return unpack(self.packed)

    def summary(self) -> dict[str, Any]:
        """All but the weights."""
        return {
            "density": self.density,
            "nonzeros": self.nonzeros,
            "metric": self.metric,
            "epochs": self.epochs,
        }

    def __repr__(self) -> str:
        return (
            f"Point({self.nonzeros} weights, {self.density:.3%}, metric {self.metric:.6g},"
            f" {self.epochs} epochs)"
        )


@dataclass(frozen=True)
class TrialRecord:
    """One line of a search's history.

    trial             what was done: dense, settle, reweight, probe or cut
    density           the share of the weights that was not zero after it
    nonzeros          their number
    metric            on the validation data; None where the trial failed
    within_tolerance  whether the metric holds the tolerance
    epochs            spent on the whole search so far
    seconds           spent on training so far
    note              what was special: rolled back, diverged, another optimizer
    losses            the mean training loss of each of its epochs, where the task keeps it

    >>> record = TrialRecord("cut", 0.25, 100, None, False, 12, 3.5, "rolled back")
    >>> TrialRecord.from_json(record.to_json()) == record
    True
    """

    trial: str
    density: float
    nonzeros: int
    metric: float | None
    within_tolerance: bool
    epochs: int
    seconds: float
    note: str = ""
    losses: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As an entry of history.json; losses only where there are any."""
        plain = asdict(self)
        losses = plain.pop("losses")
        return {**plain, "losses": list(losses)} if losses else plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> TrialRecord:
        """From an entry of history.json; keys that are not known are left out."""
        known = {each.name: plain[each.name] for each in fields(cls) if each.name in plain}
        return cls(**{**known, "losses": tuple(known.get("losses", ()))})

    def __str__(self) -> str:
        metric = "no metric" if self.metric is None else f"metric {self.metric:.6g}"
        verdict = "within tolerance" if self.within_tolerance else "beyond tolerance"
        note = f": {self.note}" if self.note else ""
        return (
            f"epoch {self.epochs}, {self.trial}: {self.density:.3%} of the weights,"
            f" {metric}, {verdict}{note}"
        )


def pareto(points: Sequence[Point], higher_is_better: bool) -> list[Point]:
    """The points that no other beats in both weights and metric, the densest first.

    >>> points = [Point(d, n, m, 0, {}) for d, n, m in [(1, 100, 98), (0.5, 50, 99), (0.1, 10, 90)]]
    >>> [point.nonzeros for point in pareto(points, higher_is_better=True)]
    [50, 10]
    """
    sign = 1 if higher_is_better else -1
    front: list[Point] = []
    for point in sorted(points, key=lambda each: (each.nonzeros, -sign * each.metric)):
        if not front or sign * point.metric > sign * front[-1].metric:
            front.append(point)
    return front[::-1]
