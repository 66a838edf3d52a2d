"""Zeros where a mask is false, and the places where it is true: compiled, or by torch.

The compiled passes take float32 and a mask on the CPU that lie in memory in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from asterism.kernels import library
from asterism.weights.sharding import local


def keep_(tensors: Sequence[Tensor], kept: Tensor) -> None:
    """Each tensor is +0, in place, where `kept` is false; on this rank's shard."""
    kernels, kept = library.load(), local(kept)
    for each in map(local, tensors):
        if kernels is not None and each.dtype is torch.float32 and _same_order(each, kept):
            kernels.asterism_keep(each.data_ptr(), kept.data_ptr(), each.numel())
        else:
            each.masked_fill_(~kept, 0.0)


def list_kept(kept: Tensor, count: int) -> Tensor:
    """The places of the `count` true entries of a row of bools."""
    kernels = library.load()
    if kernels is None or not kept.is_cpu:
        return kept.nonzero().squeeze(1)
    places = torch.empty(count, dtype=torch.int64)
    kernels.asterism_list_kept(kept.data_ptr(), count, places.data_ptr())
    return places


def _same_order(tensor: Tensor, kept: Tensor) -> bool:
    return tensor.is_cpu and kept.is_cpu and tensor.stride() == kept.stride() and is_dense(tensor)


def is_dense(tensor: Tensor) -> bool:
    """Whether it fills its memory without gaps, in whatever order."""
    return bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))
