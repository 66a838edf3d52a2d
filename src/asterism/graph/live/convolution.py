"""How a convolution moves over its input, and which kernels compute it.

A convolution with most of its weights computes with all of them; its zeros get no gradient either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from asterism.errors import InputError
from asterism.graph.live.blocks import LANES

MOST = 2**29  # floats in a block, which the kernels count by 32 bits
Pair = tuple[int, int]


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


def convolved(
    value: Tensor, weight: Tensor, geometry: Geometry, images: int, relu: bool
) -> Convolved:
    blocks, channels, height, width, _ = value.shape
    units, _, kernel_h, kernel_w = weight.shape
    out = geometry.out((height, width), (kernel_h, kernel_w))
    shape = (blocks, units, *out, LANES)
    if max(channels * height * width, units * out[0] * out[1]) * LANES > MOST:
        raise InputError("a layer with this many values for an image cannot be trained live")
    way = geometry.kernels_for(weight)
    sizes = [blocks, channels, height, width, units, *out, kernel_h, kernel_w]
    sizes += [*geometry.stride, *geometry.padding, *geometry.dilation, geometry.groups]
    sizes += [way == "dense", images, relu]
    return Convolved("winograd" if way == "winograd" else "conv", sizes, shape)
