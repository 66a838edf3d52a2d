"""Layers that compute with their non-zero weights, forward and backward, for autograd.

A convolution with most of its weights computes with all of them; its zeros get no gradient either.

Owns the calls of the kernels in kernels/training. Values are blocks of images, 16 side by side, as
(blocks, channels, height, width, 16). In the last block some lanes may be no images: whatever they
hold, their gradients are zero.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.modules.batchnorm import _BatchNorm

from asterism.errors import InputError

LANES = 16  # images side by side, as in kernels/program.h
MOST = 2**29  # floats in a block, which the kernels count by 32 bits
Pair = tuple[int, int]


@dataclass(frozen=True)
class Kernels:
    """The library, and which of its instruction sets."""

    library: ctypes.CDLL
    level: int

    def run(self, name: str, sizes: Sequence[int], *given: Tensor | float | None) -> None:
        """Calls a kernel on as many threads as torch has."""
        numbers = (ctypes.c_int64 * len(sizes))(*sizes)
        places = [each.data_ptr() if isinstance(each, Tensor) else each for each in given]
        call = getattr(self.library, f"asterism_{name}")
        if call(self.level, numbers, *places, torch.get_num_threads()):
            raise MemoryError("no memory for a layer's rows")


# ---------------------------------------------------------------------- convolution


@dataclass(frozen=True)
class Geometry:
    """How a convolution moves over its input."""

    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    def out(self, size: Pair, kernel: Pair) -> Pair:
        """The height and width of what it makes."""
        height, width = (
            (size[i] + 2 * self.padding[i] - self.dilation[i] * (kernel[i] - 1) - 1)
            // self.stride[i]
            + 1
            for i in (0, 1)
        )
        return height, width


def convolve(
    value: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry, kernels: Kernels
) -> Tensor:
    """The convolution, through the non-zeros of its weight or, where that is faster, all of it.

    value     (blocks, channels, height, width, 16)
    weight    (units, channels of a group, height, width): its zeros get no gradient
    bias      one for each unit, or None
    geometry  stride, padding, dilation and groups
    kernels   what computes it
    """
    made: Tensor = _Convolution.apply(value, weight, bias, geometry, kernels)  # type: ignore[no-untyped-call]
    return made


def _choose(weight: Tensor, geometry: Geometry) -> str:
    """The fastest kernels for a weight, by the share of its non-zeros, as measured."""
    if geometry.groups > 1:
        return "sparse"
    share = int(weight.count_nonzero()) / max(weight.numel(), 1)
    plain = geometry.stride == geometry.dilation == (1, 1) and max(geometry.padding) <= 2
    if plain and weight.shape[2:] == (3, 3) and share > 0.08 + 5 / min(weight.shape[:2]):
        return "winograd"
    return "dense" if share > 0.55 else "sparse"


class _Convolution(Function):
    @staticmethod
    def forward(
        ctx: Any,
        value: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        geometry: Geometry,
        kernels: Kernels,
    ) -> Tensor:
        value, weight = value.contiguous(), weight.contiguous()
        blocks, channels, height, width, _ = value.shape
        units, _, kernel_h, kernel_w = weight.shape
        out = geometry.out((height, width), (kernel_h, kernel_w))
        sizes = [blocks, channels, height, width, units, *out, kernel_h, kernel_w]
        sizes += [*geometry.stride, *geometry.padding, *geometry.dilation, geometry.groups]
        way = _choose(weight, geometry)
        name = "winograd" if way == "winograd" else "conv"
        sizes.append(way == "dense")
        made = value.new_empty(blocks, units, *out, LANES)
        if max(value[0].numel(), made[0].numel()) > MOST:
            raise InputError("a layer with this many values for an image cannot be trained live")
        kernels.run(f"{name}_forward", sizes, weight, bias, value, made)
        ctx.save_for_backward(value, weight)
        ctx.call = name, sizes, kernels
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        value, weight = ctx.saved_tensors
        name, sizes, kernels = ctx.call
        gradient = gradients[0].contiguous()
        to_weight = torch.zeros_like(weight)
        to_value = torch.empty_like(value) if ctx.needs_input_grad[0] else None
        kernels.run(f"{name}_backward", sizes, weight, value, gradient, to_weight, to_value)
        to_bias = gradient.sum((0, 2, 3, 4)) if ctx.needs_input_grad[2] else None
        return to_value, to_weight, to_bias, None, None


# ---------------------------------------------------------------------- batch norm


@dataclass(frozen=True)
class Normalised:
    """A batch norm, and whether a ReLU follows."""

    module: _BatchNorm
    relu: bool
    images: int
    kernels: Kernels

    def __call__(self, value: Tensor, other: Tensor | None) -> Tensor:
        """relu(norm(value) + other), as the mode of the module is; its averages follow."""
        norm, training = self.module, self.module.training
        count = self.images * value[0, 0].numel() // LANES
        if training and count == 1:
            raise ValueError("batch norm in training needs more than one value per channel")
        mean, variance = (norm.running_mean, norm.running_var)
        assert mean is not None
        assert variance is not None
        mean, variance = mean.clone(), variance.clone()
        made: Tensor = _Normalisation.apply(  # type: ignore[no-untyped-call]
            value, other, norm.weight, norm.bias, mean, variance, self
        )
        if training:
            _follow(norm, mean, variance * (count / (count - 1)))
        return made

    def sizes(self, value: Tensor) -> list[int]:
        pixels = value[0, 0].numel() // LANES
        return [*value.shape[:2], pixels, self.images, self.module.training, self.relu]


def _follow(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """The running averages, as torch moves them."""
    momentum = norm.momentum
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        if momentum is None:
            momentum = 1 / float(norm.num_batches_tracked)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.lerp_(mean, momentum or 0.0)
    norm.running_var.lerp_(variance, momentum or 0.0)


class _Normalisation(Function):
    @staticmethod
    def forward(
        ctx: Any,
        value: Tensor,
        other: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        norm: Normalised,
    ) -> Tensor:
        value = value.contiguous()
        other = None if other is None else other.contiguous()
        made, sizes, eps = torch.empty_like(value), norm.sizes(value), norm.module.eps
        given = (value, other, weight, bias, mean, variance, made)
        norm.kernels.run("norm_forward", sizes, eps, *given)
        ctx.save_for_backward(value, made, weight, mean, variance)
        ctx.call = norm, sizes, eps
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        value, made, weight, mean, variance = ctx.saved_tensors
        norm, sizes, eps = ctx.call
        gradient, needed = gradients[0].contiguous(), ctx.needs_input_grad
        to_value, to_weight, to_bias = (torch.empty_like(like) for like in (value, mean, mean))
        to_other = gradient if needed[1] else None
        apart = torch.empty_like(value) if needed[1] and norm.relu else None
        given = (value, made, gradient, weight, mean, variance, to_value, apart, to_weight, to_bias)
        norm.kernels.run("norm_backward", sizes, eps, *given)
        made_now = (to_value, to_other if apart is None else apart, to_weight, to_bias)
        asked = zip(made_now, needed[:4], strict=True)
        return (*(each if wanted else None for each, wanted in asked), None, None, None)


# ---------------------------------------------------------------------- pooling


def halve(value: Tensor, kernels: Kernels) -> Tensor:
    """Of each 2×2 the largest; height and width are even."""
    made: Tensor = _Halving.apply(value, kernels)  # type: ignore[no-untyped-call]
    return made


class _Halving(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, kernels: Kernels) -> Tensor:
        value = value.contiguous()
        blocks, channels, height, width, _ = value.shape
        sizes = (blocks * channels, height // 2, width // 2)
        made = value.new_empty(blocks, channels, *sizes[1:], LANES)
        kernels.run("halve", sizes, value, made)
        ctx.save_for_backward(value, made)
        ctx.call = sizes, kernels
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        value, made = ctx.saved_tensors
        sizes, kernels = ctx.call
        to_value = torch.empty_like(value)
        kernels.run("halve_backward", sizes, value, made, gradients[0].contiguous(), to_value)
        return to_value, None
