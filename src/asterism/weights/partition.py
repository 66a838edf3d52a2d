"""A weight divided into groups, each weight in exactly one: the arithmetic of group penalties."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from asterism.errors import InputError


@dataclass(frozen=True)
class Partition:
    """A weight's groups, 0 to n-1, by an index that broadcasts to its shape."""

    index: Tensor
    sizes: Tensor

    def sums(self, values: Tensor) -> Tensor:
        """Over each group, of values in the weight's shape."""
        return self.gather(self.reduce(values))

    def reduce(self, values: Tensor) -> Tensor:
        """The first part of `sums`: over the dimensions that lie within a group."""
        inner = [dim for dim, size in enumerate(self.index.shape) if size == 1]
        return values.sum(inner, keepdim=True) if inner else values

    def gather(self, reduced: Tensor) -> Tensor:
        """The second part: what is left, by the index."""
        totals = reduced.new_zeros(len(self.sizes))
        return totals.index_add_(0, self.index.flatten(), reduced.flatten())

    def spread(self, per_group: Tensor) -> Tensor:
        """One number per group, as a tensor that broadcasts to the weight's shape."""
        return per_group[self.index]

    def magnitudes(self, reduced_squares: Tensor) -> Tensor:
        """The RMS of each group, given `reduce(theta²)`."""
        sums = self.gather(reduced_squares)
        return (sums / self.sizes.to(sums.dtype)).sqrt()

    def to(self, device: torch.device) -> Partition:
        return Partition(self.index.to(device), self.sizes.to(device))


def make_partition(index: Tensor, shape: torch.Size, name: str) -> Partition:
    """The groups that an index describes; numbers that do not occur are left out."""
    _check_index(index, shape, name)
    index = index.reshape([1] * (len(shape) - index.ndim) + list(index.shape))
    _, dense, counts = torch.unique(index, return_inverse=True, return_counts=True)
    return Partition(dense, counts * (shape.numel() // index.numel()))


def _check_index(index: object, shape: torch.Size, name: str) -> None:
    if not isinstance(index, Tensor) or index.is_floating_point() or index.dtype == torch.bool:
        raise InputError(f"the groups of {name} must be a tensor of integers, found {index!r}")
    fits = index.ndim <= len(shape) and all(
        size in (1, full)
        for size, full in zip(reversed(index.shape), reversed(shape), strict=False)
    )
    if not fits:
        raise InputError(
            f"the groups of {name} must broadcast to its shape {tuple(shape)}, found shape"
            f" {tuple(index.shape)}"
        )
