"""Tensors that are sharded over ranks: this rank's shard, its place, and sums over all shards.

A plain tensor is a shard that is the whole. Knows DTensor, and nothing of what is computed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from typing_extensions import TypeIs


def is_sharded(tensor: Tensor) -> TypeIs[DTensor]:
    """A DTensor. Where nobody has imported its module, which takes over a second, there is none."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def whole(tensor: Tensor) -> Tensor:
    """A tensor with its shards and partial sums put together."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """This rank's shard, sharing its memory."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def ranks_of(tensor: Tensor) -> int:
    """How many ranks hold a tensor together; a plain one is one rank's."""
    return tensor.device_mesh.size() if is_sharded(tensor) else 1


def place_like(tensor: Tensor, like: Tensor) -> Tensor:
    """`tensor`, the same on every rank, sharded as `like` is."""
    if is_sharded(like) and not is_sharded(tensor):
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
    return tensor


def from_local(part: Tensor, like: Tensor) -> Tensor:
    """The tensor whose shard on each rank is `part`, sharded as `like` is."""
    if not is_sharded(like):
        return part
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part, like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
    )


def place_of(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of this rank's shard, and the index in the whole of its first entry."""
    if not is_sharded(tensor):
        return tuple(tensor.shape), (0,) * tensor.ndim
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    return compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )


def sum_over_shards(part: Tensor, like: Tensor) -> Tensor:
    """The sum over all ranks of what each has found in its shard of `like`; in place."""
    if is_sharded(like):
        for dim, placement in enumerate(like.placements):
            if not placement.is_replicate():
                dist.all_reduce(part, group=like.device_mesh.get_group(dim))
    return part


def sum_each(numbers: Sequence[int], likes: Sequence[Tensor]) -> list[int]:
    """The same for one number of each tensor; tensors that are sharded alike share an exchange."""
    sums = list(numbers)
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for at, like in enumerate(likes):
        alike[sharding_of(like)].append(at)
    for places in alike.values():
        like = likes[places[0]]
        if is_sharded(like):
            some = torch.tensor([numbers[at] for at in places], device=local(like).device)
            for at, number in zip(places, sum_over_shards(some, like).tolist(), strict=True):
                sums[at] = number
    return sums


def sharding_of(tensor: Tensor) -> Hashable:
    """Equal for tensors whose sums over shards can be exchanged together."""
    if not is_sharded(tensor):
        return tensor.device
    return tensor.device, tensor.device_mesh, tensor.placements


def count_nonzero(tensor: Tensor) -> int:
    """The entries that are not zero, of all shards."""
    return int(sum_over_shards(local(tensor).count_nonzero(), tensor))


def any_shard(found: bool, like: Tensor) -> bool:
    """Whether any rank has found it in its shard of `like`."""
    return any_shards([found], [like])[0]


def any_shards(found: Sequence[bool], likes: Sequence[Tensor]) -> list[bool]:
    """`any_shard` for several tensors."""
    return [number > 0 for number in sum_each([int(each) for each in found], likes)]


def extremes(tensor: Tensor) -> tuple[float, float]:
    """The smallest and the largest entry of this rank's shard; NaN if any is.

    One pass that makes no tensor, where a mask of what is finite or zero would.
    """
    part = local(tensor)
    if not part.numel():
        return 1.0, 0.0  # no zero to be found, and nothing alive
    low, high = part.aminmax()
    return float(low), float(high)
