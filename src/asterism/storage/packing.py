"""The weights of many networks held at once: on the CPU, sparse tensors by their live entries.

What it makes is plain data: a snapshot of it is read without running code.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
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
