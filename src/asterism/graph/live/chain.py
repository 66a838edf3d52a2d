"""Convolutions that follow each other as one layer, for autograd.

Batch norms and ReLUs in between are computed on the way, and never written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from asterism.graph.live.batch_norm import Normal, normal_of
from asterism.graph.live.blocks import LANES, Kernels
from asterism.graph.live.convolution import Convolved, Geometry, convolved
from asterism.graph.live.memory import Memory


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
            call = convolved(value, unit.weight, unit.geometry, images, relu)
            made = kernels.memory.empty(call.shape)
        if training and images * math.prod(made.shape[2:-1]) == 1:
            raise ValueError("batch norm in training needs more than one value per channel")
        moments = torch.zeros(made.shape[1], 3, dtype=torch.float64) if training else None
        if call is not None:
            assert unit.weight is not None
            by = None if read_as is None else read_as.by
            given = (unit.weight.contiguous(), unit.bias, value, by, made, moments)
            kernels.run(f"{call.name}_forward", call.sizes, *given)
        elif training:
            kernels.run("norm_moments", chain.norm_sizes(made, images), made, moments)
        normal = None if unit.norm is None else normal_of(unit.norm, moments, kernels)
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
