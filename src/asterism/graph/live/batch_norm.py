"""Batch norm of blocks: from a batch's moments in training, from running averages else."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from asterism.graph.live.blocks import Kernels


class Normal(NamedTuple):
    """What a batch norm does to its channels: (x − mean)·scale + bias.

    by       (channels, 3): mean, scale and bias, in float32
    moments  (channels, 3): the number of values, or 0 with running averages; their mean, and the
             sum of their squared distances from it, in double precision
    inverse  one over the standard deviation
    """

    by: Tensor
    moments: Tensor
    inverse: Tensor

    def backward(self, sums: Tensor, kernels: Kernels) -> tuple[Tensor, Tensor, Tensor]:
        """By what gradients go through it, (channels, 4); and those of its weight and bias.

        sums  (channels, 2): of the gradient of what it made, and of that times (x − mean)
        """
        channels = len(sums)
        inverted, weight, bias = (torch.empty(size) for size in (4 * channels, channels, channels))
        given = (self.moments, self.by, self.inverse, sums, inverted, weight, bias)
        kernels.run("inverted", [channels], *given)
        return inverted, weight, bias


def normal_of(norm: _BatchNorm, moments: Tensor | None, kernels: Kernels) -> Normal:
    """From the batch's moments in training, which move the running averages; else from these."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    momentum = 0.0
    if moments is None:
        none = torch.zeros_like(norm.running_mean)
        moments = torch.stack([none, norm.running_mean, norm.running_var], 1).double()
    else:
        momentum = _momentum(norm)
    channels = len(moments)
    made = Normal(torch.empty(channels, 3), moments, torch.empty(channels, dtype=torch.float64))
    by = torch.tensor((norm.eps, momentum), dtype=torch.float64)
    given = (moments, norm.weight, norm.bias, by, norm.running_mean, norm.running_var)
    kernels.run("normals", [channels], *given, made.by, made.inverse)
    return made


def _momentum(norm: _BatchNorm) -> float:
    """By how much this batch moves the running averages: as in torch."""
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        if norm.momentum is None:
            return 1 / float(norm.num_batches_tracked)
    return norm.momentum or 0.0
