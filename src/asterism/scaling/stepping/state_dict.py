"""How the wrapper's state rides in the inner optimizer's state_dict, and comes out of it again.

Per parameter, beside the inner optimizer's own entries, so that whatever can save and shard those
can save and shard ours: torch.save, torch.distributed.checkpoint, FSDP2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from asterism.errors import InputError, one_line
from asterism.scaling.layer import Layer
from asterism.weights.sharding import extremes, is_sharded, place_like, ranks_of

PREFIX = "asterism_"
COUNTERS = ("iteration", "steps", "seed")
TENSORS = ("omega", "latent", "psi", "previous")
NUMBERS = ("scale", "tau", "scaled", "stale")

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


def check_form(state_dict: Any) -> None:
    """An error for what is no optimizer's state_dict at all."""
    if not isinstance(state_dict, Mapping) or not state_dict.keys() >= {"state", "param_groups"}:
        raise InputError(
            "expected an optimizer's state_dict, with 'state' and 'param_groups': give what"
            " state_dict() of the wrapped optimizer returned"
        )


def load_inner(optimizer: Optimizer, state_dict: StateDict) -> None:
    """Loads the inner optimizer's own part, or leaves the optimizer exactly as it was."""
    before = dict(vars(optimizer))  # loading replaces what these hold, and writes to none of it
    settings = optimizer.defaults.keys() & optimizer.param_groups[0].keys()
    try:
        optimizer.load_state_dict(state_dict)
        for group in optimizer.param_groups:
            if missing := settings - group.keys():
                raise KeyError(*sorted(missing))
    except Exception as error:
        vars(optimizer).clear()
        vars(optimizer).update(before)
        raise InputError(
            f"the saved state is not one of {type(optimizer).__name__}, the optimizer inside"
            f" ({one_line(error)}): use the kind of optimizer and the groups that it was saved from"
        ) from error


def layer_state(layer: Layer) -> dict[str, Tensor]:
    """What must be saved of a layer, as tensors."""
    numbers = {
        "scale": torch.tensor(layer.scale, dtype=torch.float64),
        "tau": torch.tensor(layer.tau, dtype=torch.float64),
        "scaled": torch.tensor(layer.scaled),
        "stale": torch.tensor(layer.stale),
    }
    tensors = {name: getattr(layer, name) for name in TENSORS}
    return numbers | {name: tensor for name, tensor in tensors.items() if tensor is not None}


def check_layer(layer: Layer, state: Mapping[str, Any]) -> None:
    """An error unless the layer can take this state. Whether there is a latent q is part of it."""
    expected = {name: tensor.shape for name, tensor in layer_state(layer).items()}
    expected.pop("latent", None)
    if "latent" in state:
        expected["latent"] = layer.param.shape
    for name, shape in expected.items():
        found = state.get(name)
        if not isinstance(found, Tensor) or found.shape != shape:
            raise InputError(
                f"the saved state of {layer.name} has no {name} of shape {tuple(shape)}: it was"
                " saved from another model or by another kind of optimizer"
            )
        if is_sharded(found) and ranks_of(found) != ranks_of(layer.omega):
            raise InputError(
                f"the saved {name} of {layer.name} is a shard of {ranks_of(found)} ranks, and"
                f" here are {ranks_of(layer.omega)}: save and load it by"
                " torch.distributed.checkpoint, or whole, by get_state_dict with"
                " full_state_dict=True"
            )


def load_layer(layer: Layer, state: Mapping[str, Tensor]) -> None:
    """The inverse of `layer_state`."""
    if "latent" not in state:
        layer.latent = None
    elif layer.latent is None:
        layer.latent = torch.empty_like(layer.omega)
    for name in layer_state(layer).keys() - set(NUMBERS):
        current = getattr(layer, name)
        current.copy_(place_like(state[name].to(current.device), current))
    layer.scale = float(state["scale"])
    layer.scaled, layer.stale = bool(state["scaled"]), bool(state["stale"])
    layer.tau = float(state["tau"])
    layer.mark_dead(extremes(layer.omega)[0] == 0)


def check(kind: type, layers: Mapping[Any, Layer], ours: Entries) -> None:
    """An error unless each layer, and nothing but these layers, finds its state of that kind."""
    if not ours:
        raise InputError(
            "the saved state has nothing of asterism: it is that of another optimizer, or"
            " was loaded with flatten_optimizer_state_dict=True, which drops it"
        )
    for key, layer in layers.items():
        check_layer(layer, ours.get(key, {}))
        if not ours[key].keys() >= set(COUNTERS):
            raise InputError(f"the saved state of {layer.name} is incomplete")
        _check_kind(kind, ours[key])
    others = ours.keys() - layers.keys()
    if others:
        raise InputError(
            f"the saved state makes parameters {', '.join(sorted(map(str, others)))} sparse, which"
            " are left alone here: use the same include and exclude"
        )


def _check_kind(kind: type, entry: Mapping[str, Any]) -> None:
    """A latent q and an omega other than 0 and 1 mean something to one algorithm each."""
    needed = "Splicing" if "latent" in entry else "AffineScaling" if entry["scaled"] else None
    if needed is not None and needed not in {each.__name__ for each in kind.__mro__}:
        raise InputError(
            f"the saved state is that of {needed}, which {kind.__name__} cannot continue: load it"
            f" into {needed}, or call flatten() before it is saved"
        )


def _members(groups: Sequence[dict[str, Any]]) -> list[Any]:
    return [member for group in groups for member in group["params"]]
