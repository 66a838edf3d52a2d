"""Layers that compute with their non-zero weights, forward and backward, for autograd.

A convolution with most of its weights computes with all of them; its zeros get no gradient either.
What follows from one convolution to the next is one layer, a `Chain`: batch norms and ReLUs in
between are computed on the way, and never written.

Owns the calls of the kernels in kernels/training. Values are blocks of images, 16 side by side, as
(blocks, channels, height, width, 16). In the last block some lanes may be no images: whatever they
hold, their gradients are zero.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from asterism.errors import InputError
from asterism.graph.live.memory import Memory

LANES = 16  # images side by side, as in kernels/program.h
MOST = 2**29  # floats in a block, which the kernels count by 32 bits
Pair = tuple[int, int]


@dataclass(frozen=True)
class Kernels:
    """The library, and which of its instruction sets."""

    library: ctypes.CDLL
    level: int
    memory: Memory = field(default_factory=Memory)

    def run(self, name: str, sizes: Sequence[int], *given: Tensor | None) -> None:
        """Calls a kernel on as many threads as torch has."""
        numbers = (ctypes.c_int64 * len(sizes))(*sizes)
        places = [None if each is None else each.data_ptr() for each in given]
        call = getattr(self.library, f"asterism_{name}")
        if call(self.level, numbers, *places, torch.get_num_threads()):
            raise MemoryError("no memory for a layer's rows")


def to_blocks(images: Tensor, kernels: Kernels) -> Tensor:
    """(blocks, …, 16), with zeros for the images that are missing in the last block."""
    made: Tensor = _Blocks.apply(images, kernels)  # type: ignore[no-untyped-call]
    return made


class _Blocks(Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, kernels: Kernels) -> Tensor:
        ctx.images = len(images)
        made = kernels.memory.empty((-(-len(images) // LANES), *images.shape[1:], LANES))
        sizes = (len(images), images[0].numel())
        kernels.run("to_blocks", sizes, images.contiguous(), made)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return from_blocks(gradients[0], ctx.images), None


def from_blocks(value: Tensor, images: int) -> Tensor:
    """Blocks of 16 images side by side as images one after the other, (images, …)."""
    return value.movedim(-1, 1).flatten(0, 1)[:images]


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

    def kernels_for(self, weight: Tensor) -> str:
        """The fastest for a weight, by the share of its non-zeros, as measured."""
        if self.groups > 1:
            return "sparse"
        share = int(weight.count_nonzero()) / max(weight.numel(), 1)
        plain = self.stride == self.dilation == self.padding == (1, 1)
        if plain and weight.shape[2:] == (3, 3) and share > 0.08 + 5 / min(weight.shape[:2]):
            return "winograd"
        return "dense" if share > 0.55 else "sparse"


class Convolved(NamedTuple):
    """A call of a convolution: which kernels, its sizes, and the shape of what it makes."""

    name: str
    sizes: list[int]
    shape: tuple[int, ...]


def _convolved(
    value: Tensor, weight: Tensor, geometry: Geometry, images: int, relu: bool
) -> Convolved:
    blocks, channels, height, width, _ = value.shape
    units, _, kernel_h, kernel_w = weight.shape
    out = geometry.out((height, width), (kernel_h, kernel_w))
    shape = (blocks, units, *out, LANES)
    if max(value[0].numel(), units * out[0] * out[1] * LANES) > MOST:
        raise InputError("a layer with this many values for an image cannot be trained live")
    way = geometry.kernels_for(weight)
    sizes = [blocks, channels, height, width, units, *out, kernel_h, kernel_w]
    sizes += [*geometry.stride, *geometry.padding, *geometry.dilation, geometry.groups]
    sizes += [way == "dense", images, relu]
    return Convolved("winograd" if way == "winograd" else "conv", sizes, shape)


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
    return Chain((Unit(weight, bias, geometry),), kernels)(len(value) * LANES, value)


# ---------------------------------------------------------------------- batch norm


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


def _normal(norm: _BatchNorm, moments: Tensor | None, kernels: Kernels) -> Normal:
    """From the batch's moments in training, else from the running averages."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    if moments is None:
        averages = (norm.running_mean.new_zeros(()).expand_as(norm.running_mean), norm.running_mean)
        moments = torch.stack([*averages, norm.running_var], 1).double()
    else:
        count = float(moments[0, 0])
        if count == 1:
            raise ValueError("batch norm in training needs more than one value per channel")
        _follow(norm, moments[:, 1].float(), (moments[:, 2] / (count - 1)).float())
    channels = len(moments)
    made = Normal(torch.empty(channels, 3), moments, torch.empty(channels, dtype=torch.float64))
    eps = torch.tensor(norm.eps, dtype=torch.float64)
    given = (moments, norm.weight, norm.bias, eps, made.by, made.inverse)
    kernels.run("normals", [channels], *given)
    return made


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


# ---------------------------------------------------------------------- chains


@dataclass(frozen=True)
class Unit:
    """A convolution, a batch norm, or both; and whether a ReLU follows the batch norm."""

    weight: Tensor | None = None
    bias: Tensor | None = None
    geometry: Geometry = field(default_factory=Geometry)
    norm: _BatchNorm | None = None
    relu: bool = False

    def parameters(self) -> tuple[Tensor | None, ...]:
        norm = self.norm
        affine = (None, None) if norm is None else (norm.weight, norm.bias)
        return (self.weight, self.bias, *affine)


@dataclass(frozen=True)
class Around:
    """A shortcut without weights: every step-th pixel, between channels of zeros."""

    step: int = 1
    before: int = 0
    after: int = 0

    def __call__(self, value: Tensor, memory: Memory) -> Tensor:
        if self == Around():
            return value
        thin = value[:, :, :: self.step, :: self.step]
        channels = value.shape[1]
        made = memory.empty((len(value), channels + self.before + self.after, *thin.shape[2:]))
        made[:, : self.before] = 0
        made[:, self.before : self.before + channels] = thin
        made[:, self.before + channels :] = 0
        return made


@dataclass(frozen=True)
class Chain:
    """Units that follow each other; before the last ReLU a value may be added.

    units    all but the last have a batch norm, all but the first a convolution
    kernels  what computes them
    around   how the chain's own input is added, as in a residual block, if it is
    """

    units: tuple[Unit, ...]
    kernels: Kernels
    around: Around | None = None

    def __call__(self, images: int, value: Tensor, other: Tensor | None = None) -> Tensor:
        params = [param for unit in self.units for param in unit.parameters()]
        made: Tensor = _Chain.apply(self, images, value, other, *params)  # type: ignore[no-untyped-call]
        return made

    def norm_sizes(self, value: Tensor, images: int) -> list[int]:
        return [
            *value.shape[:2],
            value[0, 0].numel() // LANES,
            images,
            self.units[-1].relu,
        ]


class _Made(NamedTuple):
    """What the forward of a unit leaves for its backward."""

    value: Tensor  # that it read
    read_as: Normal | None
    made: Tensor | None
    call: Convolved | None
    normal: Normal | None


class _Chain(Function):
    @staticmethod
    def forward(
        ctx: Any,
        chain: Chain,
        images: int,
        value: Tensor,
        other: Tensor | None,
        *params: Tensor | None,
    ) -> Tensor:
        value = value.contiguous()
        if chain.around is not None:
            other = chain.around(value, chain.kernels.memory)
        elif other is not None:
            other = other.contiguous()
        made = list(_forward(chain, images, value))
        last, out = made[-1], made[-1].made
        assert last.made is not None
        assert out is not None
        if last.normal is not None:
            out = chain.kernels.memory.empty(last.made.shape)
            sizes = chain.norm_sizes(last.made, images)
            chain.kernels.run("norm_apply", sizes, last.made, other, last.normal.by, out)
        if out is last.made:  # not needed, and it would keep itself alive
            made[-1] = last._replace(made=None)
        ctx.call = chain, images, made, other is not None
        ctx.save_for_backward(out, *(unit.weight for unit in chain.units))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        chain, images, made, added = ctx.call
        out, *weights = ctx.saved_tensors
        kernels, last = chain.kernels, made[-1]
        gradient, sums = gradients[0].contiguous(), None
        if last.normal is not None:
            sums = torch.zeros(len(last.normal.by), 2, dtype=torch.float64)
            through = kernels.memory.empty(gradient.shape) if chain.units[-1].relu else gradient
            read = out if added else None  # else what it was is computed again
            given = (last.made, read, gradient, last.normal.by, through, sums)
            kernels.run("norm_sums", chain.norm_sizes(last.made, images), *given)
            gradient = through
        needed = ctx.needs_input_grad
        to_params, to_value = _backward(
            chain, images, made, weights, gradient, sums, wanted=needed[2]
        )
        asked = zip((to_value, gradient, *to_params), needed[2:], strict=True)
        return (None, None, *(each if wanted else None for each, wanted in asked))


def _forward(chain: Chain, images: int, value: Tensor) -> Iterator[_Made]:
    kernels, read_as, relu = chain.kernels, None, False
    for unit in chain.units:
        training = unit.norm is not None and unit.norm.training
        made, call = value, None
        if unit.weight is not None:
            call = _convolved(value, unit.weight, unit.geometry, images, relu)
            made = kernels.memory.empty(call.shape)
        moments = torch.zeros(made.shape[1], 3, dtype=torch.float64) if training else None
        if call is not None:
            assert unit.weight is not None
            by = None if read_as is None else read_as.by
            given = (unit.weight.contiguous(), unit.bias, value, by, made, moments)
            kernels.run(f"{call.name}_forward", call.sizes, *given)
        elif training:
            kernels.run("norm_moments", chain.norm_sizes(made, images), made, moments)
        normal = None if unit.norm is None else _normal(unit.norm, moments, kernels)
        yield _Made(value, read_as, made, call, normal)
        value, read_as, relu = made, normal, unit.relu


def _backward(
    chain: Chain,
    images: int,
    made: Sequence[_Made],
    weights: Sequence[Tensor | None],
    gradient: Tensor,
    sums: Tensor | None,
    wanted: bool,
) -> tuple[list[Tensor | None], Tensor | None]:
    """The gradients of all parameters, and of the chain's input."""
    kernels, around, added = chain.kernels, chain.around, gradient
    to_params: list[Tensor | None] = []
    for here, unit, weight in reversed(list(zip(made, chain.units, weights, strict=True))):
        first = here is made[0]
        to_scale = to_shift = inverted = to_weight = to_bias = None
        if here.normal is not None:
            assert sums is not None
            inverted, to_scale, to_shift = here.normal.backward(sums, kernels)
        to_value = kernels.memory.empty(here.value.shape) if wanted or not first else None
        if here.call is not None:
            assert weight is not None
            weight = weight.contiguous()
            to_weight = torch.zeros_like(weight)
            if unit.bias is not None:
                to_bias = _to_bias(here, gradient, to_shift)
            sums = None if first else torch.zeros(here.value.shape[1], 2, dtype=torch.float64)
            by = None if here.read_as is None else here.read_as.by
            before = None if inverted is None else here.made
            given = (weight, here.value, by, gradient, before, inverted)
            across = around if first else None  # the shortcut's gradient joins that of the input
            sizes = [*here.call.sizes, 0, 0, 1]
            if across is not None:
                sizes[-3:] = [added.shape[1], across.before, across.step]
            ends = (None if across is None else added, to_weight, to_value, sums)
            kernels.run(f"{here.call.name}_backward", sizes, *given, *ends)
        elif to_value is not None:
            sizes = chain.norm_sizes(here.value, images)
            kernels.run("norm_invert", sizes, here.value, gradient, inverted, to_value)
        to_params[:0] = [to_weight, to_bias, to_scale, to_shift]
        if first or to_value is None:
            break
        gradient = to_value
    return to_params, to_value


def _to_bias(here: _Made, gradient: Tensor, to_shift: Tensor | None) -> Tensor:
    """The gradient of a convolution's bias; none where a batch norm subtracts the bias again."""
    if here.normal is None:
        return gradient.sum((0, 2, 3, 4))
    assert to_shift is not None
    in_training = bool(here.normal.moments[0, 0])
    return torch.zeros_like(to_shift) if in_training else to_shift * here.normal.by[:, 1]


# ---------------------------------------------------------------------- pooling


def halve(value: Tensor, kernels: Kernels) -> Tensor:
    """Max-pooling of 2×2; height and width are even."""
    made: Tensor = _Halving.apply(value, kernels)  # type: ignore[no-untyped-call]
    return made


class _Halving(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, kernels: Kernels) -> Tensor:
        value = value.contiguous()
        blocks, channels, height, width, _ = value.shape
        sizes = (blocks * channels, height // 2, width // 2)
        made = kernels.memory.empty((blocks, channels, *sizes[1:], LANES))
        kernels.run("halve", sizes, value, made)
        ctx.save_for_backward(value, made)
        ctx.call = sizes, kernels
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        value, made = ctx.saved_tensors
        sizes, kernels = ctx.call
        to_value = kernels.memory.empty(value.shape)
        kernels.run("halve_backward", sizes, value, made, gradients[0].contiguous(), to_value)
        return to_value, None
