"""theta = q ⊙ omega by one compiled pass over all small and all pruned layers.

To hand a small layer over to torch takes longer than its arithmetic. Of a pruned layer the pass
reads and writes live weights alone where few are left. It takes float32 on the CPU, where parameter
and omega lie in memory in the same order. The addresses that it reads are kept from step to step.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

from asterism.kernels import library
from asterism.scaling.layer import Layer
from asterism.weights.sharding import is_sharded

FIELDS = 6  # of `Scaled` in kernels/training/q_space.c
UNPRUNED = -1  # in place of the number of live weights


def takes(layer: Layer) -> bool:
    """Whether the compiled pass takes a layer."""
    omega, param = layer.omega, layer.param
    if library.load() is None or is_sharded(omega) or not (layer.pruned or layer.is_small):
        return False
    floats = omega.dtype is torch.float32 and param.dtype is omega.dtype
    return floats and omega.is_cpu and param.is_cpu and _lies_in(param, _strides(omega))


class CompiledLayers:
    """Layers that the pass takes, as its rows."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers
        self.strides = [_strides(layer.omega) for layer in layers]
        self.thetas = self._addresses()
        self.rows = array("q")
        for layer, theta in zip(layers, self.thetas, strict=True):
            self.rows.extend((theta, 0, *_about_omega(layer)))

    def in_place(self) -> bool:
        """Whether the parameters are in the memory in which they were found."""
        return self.thetas == self._addresses()

    def fits(self, gradients: Sequence[Tensor | None]) -> bool:
        """Whether the numbers of each gradient lie in memory in the order of omega's."""
        return all(map(_lies_in, gradients, self.strides))

    def to_q(self, gradients: Sequence[Tensor | None], *, zero: bool) -> None:
        """theta → q, and gradients of theta → gradients of q, in place.

        gradients  of each layer, None where it stays as it is
        zero       gradients of pruned weights become 0; else they may be anything
        """
        if not self.fits(gradients):
            gradients = self._leave_to_torch(gradients, zero)
        self._point_to(gradients)
        self._call("asterism_to_q", zero)

    def to_theta(self) -> None:
        """q → theta in place, +0 where pruned."""
        self._call("asterism_to_theta")

    def bundle(self, gradients: Sequence[Tensor], q: Tensor, of_q: Tensor) -> None:
        """theta → q, and gradients of theta → gradients of q, into one row for all layers."""
        self._point_to(gradients)
        self._call("asterism_bundle", q.data_ptr(), of_q.data_ptr())

    def unbundle(self, q: Tensor) -> None:
        """Back from that row: q → theta, +0 where pruned."""
        self._call("asterism_unbundle", q.data_ptr())

    def _addresses(self) -> list[int]:
        return [layer.param.data_ptr() for layer in self.layers]

    def _point_to(self, gradients: Sequence[Tensor | None]) -> None:
        at = [0 if each is None else each.data_ptr() for each in gradients]
        self.rows[1::FIELDS] = array("q", at)

    def _leave_to_torch(
        self, gradients: Sequence[Tensor | None], zero: bool
    ) -> list[Tensor | None]:
        """Those that lie in another order than omega; None is in their place then."""
        left: list[Tensor | None] = []
        for layer, gradient, strides in zip(self.layers, gradients, self.strides, strict=True):
            fits = _lies_in(gradient, strides)
            if not fits and gradient is not None:
                layer.multiply_(gradient, zero=zero)
            left.append(gradient if fits else None)
        return left

    def _call(self, name: str, *more: int) -> None:
        if self.layers:
            kernels = library.load()
            assert kernels is not None
            getattr(kernels, name)(self.rows.buffer_info()[0], len(self.layers), *more)


def _about_omega(layer: Layer) -> tuple[int, int, int, int]:
    """The fields from `omega` on."""
    omega, live = layer.omega, layer.live
    if live is not None:
        values = layer.live_omega
        at = 0 if values is None else values.data_ptr()
        return at, live.data_ptr(), omega.numel(), live.numel()
    if layer.pruned:
        return omega.data_ptr(), 0, omega.numel(), 0
    return omega.data_ptr() if layer.scaled else 0, 0, omega.numel(), UNPRUNED


def _strides(tensor: Tensor) -> tuple[int, ...] | None:
    """None where it is contiguous, which is the quicker question."""
    return None if tensor.is_contiguous() else tensor.stride()


def _lies_in(tensor: Tensor | None, strides: tuple[int, ...] | None) -> bool:
    """Whether its numbers lie in memory in that order; of no tensor, yes."""
    if tensor is None:
        return True
    return tensor.is_contiguous() if strides is None else tensor.stride() == strides
