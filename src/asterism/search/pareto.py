"""What a search has found: networks by density and metric, and the front of the best of them.

Owns how the weights of many networks are held at once: on the CPU, sparse tensors by their live
entries. As plain data, so that a checkpoint of them is read without running code.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

WORTH_PACKING = 1 / 4
"""An entry takes three times its room (a value and a long index) once it is listed."""

Packed = dict[str, Any]


def pack(state: Mapping[str, Any]) -> Packed:
    """A copy of a state_dict on the CPU, its sparse tensors as indices and values.

    >>> pack({"w": torch.tensor([0.0, 0.0, 0.0, 2.0, 0.0])})["w"]["value"]
    tensor([2.])
    """
    return {name: _pack(value) for name, value in state.items()}


def unpack(packed: Packed) -> dict[str, Any]:
    """The state_dict that was packed, copied.

    >>> unpack(pack({"w": torch.tensor([0.0, 0.0, 0.0, 2.0, 0.0])}))["w"]
    tensor([0., 0., 0., 2., 0.])
    """
    return {name: _unpack(value) for name, value in packed.items()}


def _pack(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    tensor = value.detach().to("cpu")
    if not tensor.is_floating_point() or tensor.count_nonzero() > WORTH_PACKING * tensor.numel():
        return tensor.clone(memory_format=torch.preserve_format)
    flat = tensor.flatten()
    index = flat.nonzero().squeeze(1)
    return {"shape": list(tensor.shape), "index": index, "value": flat[index]}


def _unpack(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict) and value.keys() == {"shape", "index", "value"}:
        flat = torch.zeros(value["shape"], dtype=value["value"].dtype).flatten()
        flat[value["index"]] = value["value"]
        return flat.view(value["shape"])
    return copy.deepcopy(value)


@dataclass(frozen=True, eq=False)
class Point:
    """One network that was measured.

    density   the share of the weights made sparse that is not zero
    nonzeros  their number
    metric    on the validation data, as `evaluate` gave it
    epochs    spent when it was found
    packed    the weights; `state_dict` unpacks them
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
