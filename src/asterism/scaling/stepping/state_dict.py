"""How the wrapper's state rides in the inner optimizer's state_dict, and comes out of it again.

Per parameter, beside the inner optimizer's own entries, so that whatever can save and shard those
can save and shard ours: torch.save, torch.distributed.checkpoint, FSDP2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from asterism.errors import InputError
from asterism.scaling.layer import Layer

PREFIX = "asterism_"
COUNTERS = ("iteration", "steps", "seed")

StateDict = dict[str, Any]
Entries = dict[Any, dict[str, Any]]


def by_key(
    state_dict: StateDict, groups: Sequence[dict[str, Any]], layers: Sequence[Layer]
) -> dict[Any, Layer]:
    """Layers by the key that a state_dict gives their parameter; by position, as torch does."""
    keys, params = _members(state_dict["param_groups"]), _members(groups)
    if len(keys) != len(params):
        raise InputError(
            f"the saved state has {len(keys)} parameters, the optimizer has {len(params)}"
        )
    key_of = dict(zip(params, keys, strict=True))
    return {key_of[layer.param]: layer for layer in layers}


def join(state_dict: StateDict, ours: Mapping[Any, Mapping[str, Tensor]]) -> StateDict:
    """The inner optimizer's state_dict with ours in it."""
    # torch.distributed.checkpoint wants an entry for each parameter, if it is an empty one.
    entries = {
        key: dict(state_dict["state"].get(key, {})) for key in _members(state_dict["param_groups"])
    }
    for key, entry in ours.items():
        entries[key] |= {PREFIX + name: value for name, value in entry.items()}
    return {**state_dict, "state": entries}


def split(state_dict: StateDict) -> tuple[Entries, StateDict]:
    """The inverse of `join`: ours, and the inner optimizer's state_dict."""
    ours: Entries = {}
    rest: Entries = {}
    for key, entry in state_dict["state"].items():
        for name, value in entry.items():
            part = ours if name.startswith(PREFIX) else rest
            part.setdefault(key, {})[name.removeprefix(PREFIX)] = value
    return ours, {**state_dict, "state": rest}


def check(layers: Mapping[Any, Layer], ours: Entries) -> None:
    """An error unless each layer, and nothing but these layers, finds its state."""
    if not ours:
        raise InputError(
            "the saved state has nothing of asterism: it is that of another optimizer, or"
            " was loaded with flatten_optimizer_state_dict=True, which drops it"
        )
    for key, layer in layers.items():
        layer.check(ours.get(key, {}))
        if not ours[key].keys() >= set(COUNTERS):
            raise InputError(f"the saved state of {layer.name} is incomplete")
    others = ours.keys() - layers.keys()
    if others:
        raise InputError(
            f"the saved state makes parameters {', '.join(sorted(map(str, others)))} sparse, which"
            " are left alone here: use the same include and exclude"
        )


def _members(groups: Sequence[dict[str, Any]]) -> list[Any]:
    return [member for group in groups for member in group["params"]]
