"""theta = q ⊙ omega in pruned and in small layers: all of them in one compiled pass, or by torch.

The compiled pass takes float32 on the CPU, where parameter, gradient and omega lie in memory in the
same order. It reads and writes live weights alone where few are left.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

from asterism.kernels import library
from asterism.scaling.layer import Layer
from asterism.weights.sharding import local

# Where theta is, then the fields of kernels/training/q_space.c from `omega` on.
Row = tuple[int, tuple[int, int, int, int]]


class PrunedLayers:
    """The pruned and small layers of one step, and the addresses that the compiled pass reads."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.kernels = library.load() if layers else None
        self.layers = layers
        self.rows = [_row(layer) if self.kernels else None for layer in layers]

    def to_q(self, gradients: Sequence[Tensor | None], *, zero: bool) -> None:
        """theta → q and gradients of theta → gradients of q, in place.

        gradients  of each layer, None where it stays as it is
        zero       gradients of pruned weights become 0; else they may be anything
        """
        table = array("q")
        for layer, row, gradient in zip(self.layers, self.rows, gradients, strict=True):
            if row is not None and _same_order(gradient, layer):
                theta = row[0] if layer.scaled else 0
                table.extend((theta, 0 if gradient is None else _address(gradient), *row[1]))
                continue
            if layer.scaled:
                layer.divide_(layer.param)
            if gradient is not None:
                layer.multiply_(gradient, zero=zero)
        if table:
            assert self.kernels is not None
            self.kernels.asterism_to_q(*_sized(table), zero)

    def to_theta(self) -> None:
        """q → theta in place, +0 where pruned."""
        table = array("q")
        for layer, row in zip(self.layers, self.rows, strict=True):
            if row is not None and _address(layer.param) == row[0]:  # unless the step moved it
                table.extend((row[0], 0, *row[1]))
            else:
                layer.multiply_(layer.param)
        if table:
            assert self.kernels is not None
            self.kernels.asterism_to_theta(*_sized(table))


def _row(layer: Layer) -> Row | None:
    """None where the compiled pass cannot take the layer."""
    omega = local(layer.omega)
    if not (omega.dtype is torch.float32 and omega.is_cpu and _same_order(layer.param, layer)):
        return None
    if layer.live is None:
        return _address(layer.param), (omega.data_ptr(), 0, omega.numel(), 0)
    live, values = layer.live, layer.live_omega
    at = 0 if values is None else values.data_ptr()
    return _address(layer.param), (at, live.data_ptr(), omega.numel(), live.numel())


def _same_order(tensor: Tensor | None, layer: Layer) -> bool:
    """Whether the numbers of a parameter or gradient lie in memory as those of omega do."""
    if tensor is None:
        return True
    tensor, omega = local(tensor), local(layer.omega)
    if tensor.dtype is not omega.dtype or not tensor.is_cpu:
        return False
    # The first question is quick, and nearly always enough.
    contiguous = tensor.is_contiguous() and omega.is_contiguous()
    return contiguous or tensor.stride() == omega.stride()


def _address(tensor: Tensor) -> int:
    return local(tensor).data_ptr()


def _sized(table: array[int]) -> tuple[int, int]:
    return table.buffer_info()[0], len(table) // 6
