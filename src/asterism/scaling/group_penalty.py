"""Groups of weights that live and die together, by the same algebra as single weights.

A group G of n weights has the magnitude m = ‖theta_G‖ / √n, the RMS of its weights, so that
constants in units of the layer's RMS weight mean what they mean for single weights, whatever the
sizes. The penalty is Σ_G n·g(m), and its majoriser at the last solution, with one psi per group,

    order 1:  n·g(m) ≤ const + psi·√n·‖theta_G‖      psi = g'(m)      omega = 1/psi
    order 2:  n·g(m) ≤ const + psi·‖theta_G‖²        psi = h'(m²)     omega = psi**-½

is the group lasso's and the ridge's. Groups of one weight are single weights again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from asterism.errors import InputError
from asterism.scaling.penalties import Penalty, Scale
from asterism.weights.connections import Weight
from asterism.weights.partition import Partition, make_partition

By = Literal["filter", "channel", "row", "head"] | Callable[[torch.Size], Tensor]

UNITS: dict[str, Callable[[Weight], Tensor]] = {
    "filter": Weight.outputs,
    "channel": Weight.inputs,
    "row": Weight.rows,
    "head": Weight.heads,
}


@dataclass(frozen=True)
class Group(Penalty):
    """A penalty of groups: g of their RMS, and so one psi and one omega for all of a group.

    by="filter"   all weights of one output unit (in an LSTM or GRU, its rows in every gate)
    by="channel"  all weights that read one input unit
    by="row"      one row as stored, along dimension 0
    by="head"     one head of nn.MultiheadAttention; elsewhere by=Heads(count)
    by=function   from a weight's shape to integers, broadcastable to it: the number of each
                  weight's group

    >>> from asterism.scaling.penalties import ReweightedL1
    >>> group = Group(ReweightedL1(tau=0.5, relative=False), by="row")
    >>> group.omega(torch.tensor([2.0]))  # of the group's magnitude
    tensor([2.5000])
    """

    penalty: Penalty
    by: By = "filter"

    def __post_init__(self) -> None:
        if not isinstance(self.penalty, Penalty) or isinstance(self.penalty, Group):
            raise InputError(f"Group needs a penalty of single weights, found {self.penalty!r}")
        if not callable(self.by) and self.by not in UNITS:
            raise InputError(
                f"groups are by {', '.join(UNITS)} or by a function, not by {self.by!r}"
            )

    @property
    def order(self) -> int:  # type: ignore[override]
        """The order of the penalty."""
        return self.penalty.order

    @property
    def relative(self) -> bool:  # type: ignore[override]
        """Whether the penalty's constants are in units of the layer's RMS weight."""
        return self.penalty.relative

    @property
    def plain_in_q(self) -> bool:
        return self.penalty.plain_in_q

    def value(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        return self.penalty.value(z, scale)

    def psi(self, z: Tensor, scale: Scale = 1.0) -> Tensor:
        return self.penalty.psi(z, scale)

    def omega(self, z: Tensor, scale: Scale = 1.0, previous: Tensor | None = None) -> Tensor:
        return self.penalty.omega(z, scale, previous)

    def partition(self, weight: Weight) -> Partition:
        """The groups of one weight."""
        index = self.by(weight.shape) if callable(self.by) else UNITS[self.by](weight)
        return make_partition(index, weight.shape, weight.name)


def soft_threshold(z: Tensor, amount: Tensor | float) -> Tensor:
    """The factor on a group of magnitude z, which shrinks to max(z - amount, 0).

    The proximal step of amount·√n·‖theta_G‖:  theta_G ← theta_G · max(1 - amount / z, 0).
    """
    return torch.where(z > amount, (z - amount) / z, 0.0)
