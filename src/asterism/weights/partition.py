"""A weight tensor divided into groups: sums over each group, and one number per group."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from asterism.errors import InputError


@dataclass(frozen=True)
class Partition:
    """The groups of a weight tensor, numbered from 0; each single weight is in exactly one.

    index  the number of each weight's group; broadcasts to the weight's shape
    sizes  how many weights each group has
    """

    index: Tensor
    sizes: Tensor

    def sums(self, values: Tensor) -> Tensor:
        """The sum over each group, of values in the weight's shape."""
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
    """The groups that an index describes; numbers that do not occur are left out.

    index  integers that broadcast to the shape, equal within a group
    shape  of the weight
    name   of the weight, for errors
    """
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
