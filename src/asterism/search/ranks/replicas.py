"""One model on several ranks: copies by DistributedDataParallel, or shards by FSDP2.

Owns what a rank holds of the model, and that all ranks hold the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from asterism.errors import InputError
from asterism.search.ranks.crew import Crew
from asterism.weights import sharding
from asterism.weights.sharding import local, place_like, whole

STRAYED = 1e-3
"""Copies that differ by more than this share of the largest weight were not trained together."""


def plain(model: nn.Module) -> nn.Module:
    """The model inside of DistributedDataParallel, or the model itself."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def is_sharded(model: nn.Module) -> bool:
    return any(sharding.is_sharded(param) for param in model.parameters())


def replicate(model: nn.Module, crew: Crew) -> nn.Module:
    """What the ranks train: the model itself where it is sharded or wrapped, or else wrapped."""
    if crew.size == 1 or is_sharded(model) or isinstance(model, DistributedDataParallel):
        return model
    return DistributedDataParallel(model)


def shard_(model: nn.Module) -> None:
    """FSDP2 of each block of the model, then of the rest."""
    from torch.distributed.fsdp import fully_shard

    for block in _blocks(model):
        if _has_own_parameters(block, model):
            fully_shard(block)
    fully_shard(model)


def _blocks(model: nn.Module) -> Iterator[nn.Module]:
    """The children; of lists, which are never called, their members."""
    for child in model.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _blocks(child)
        else:
            yield child


def _has_own_parameters(block: nn.Module, model: nn.Module) -> bool:
    """Whether it has parameters, and none that is tied to one outside."""
    names = list(model.named_parameters(remove_duplicate=False))
    inside = {id(param) for param in block.parameters()}
    held = sum(1 for _ in block.named_parameters(remove_duplicate=False))
    return bool(inside) and sum(id(param) in inside for _, param in names) == held


def whole_state(model: nn.Module) -> dict[str, Any]:
    """The state_dict with its shards put together, on every rank."""
    state = model.state_dict()
    return {name: whole(each) if isinstance(each, Tensor) else each for name, each in state.items()}


def load_whole(model: nn.Module, state: Mapping[str, Any]) -> None:
    """The inverse of `whole_state`."""
    held = model.state_dict()
    parts = {
        name: place_like(each.to(local(held[name]).device), held[name])
        if name in held and sharding.is_sharded(held[name])
        else each
        for name, each in state.items()
    }
    model.load_state_dict(parts)


@torch.no_grad()
def align(model: nn.Module, crew: Crew) -> None:
    """Rank 0's copy on every rank, of all that is no shard; an error where a weight has strayed.

    Running averages differ between ranks, and processors of two kinds round differently.
    """
    if crew.size == 1:
        return
    strayed = ""
    params = dict(model.named_parameters())
    for name, tensor in (*params.items(), *model.named_buffers()):
        if sharding.is_sharded(tensor) or not tensor.numel():
            continue
        first = tensor.detach().to("cpu").flatten().clone()
        dist.broadcast(first.view(torch.uint8), group=crew.group, group_src=0)  # of any dtype
        first = first.view(tensor.shape).to(tensor.device)
        if name in params and not strayed and _far(tensor, first):
            strayed = name
        tensor.copy_(first)
    for rank, name in enumerate(crew.gather(strayed)):
        if name:
            raise InputError(
                f"after fit {name} is not the same on rank {rank} as on rank 0: fit must call the"
                " model that it is given, which adds up gradients, on as many batches on each rank"
            )


def _far(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() > STRAYED * other.abs().max())
