"""theta = q ⊙ omega in small layers of which nothing is pruned: one compiled pass over all of them.

To hand a small layer over to torch takes longer than its arithmetic. The addresses that the pass
reads are kept from step to step, and compared with where the tensors are now.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from asterism.kernels import library
from asterism.scaling.layer import Layer

FIELDS = 6  # of `Pruned` in kernels/training/q_space.c
UNPRUNED = -1  # in place of the number of live weights


class SmallLayers:
    """The rows of the compiled pass."""

    def __init__(self) -> None:
        self.addresses: list[int] = []
        self.table = array("q")
        self.strides: list[tuple[int, ...] | None] = []  # None where they are contiguous
        self.fit = False

    def __reduce__(self) -> tuple[Any, ...]:
        return SmallLayers, ()  # a copy has tensors of its own, elsewhere

    def take(self, layers: Sequence[Layer], gradients: Sequence[Tensor | None]) -> bool:
        """Whether the compiled pass takes these layers; then the next calls are about them.

        layers     small ones, by `Layer.is_small`
        gradients  of each, None where it stays as it is
        """
        if library.load() is None or not layers or not self._find(layers):
            return False
        if not all(map(_lies_in, gradients, self.strides)):
            return False
        at = [0 if each is None else each.data_ptr() for each in gradients]
        self.table[1::FIELDS] = array("q", at)
        return True

    def to_q(self) -> None:
        """theta → q, and gradients of theta → gradients of q, in place."""
        self._call("asterism_to_q", 0)

    def to_theta(self, layers: Sequence[Layer]) -> bool:
        """q → theta in place; False where an optimizer has put a parameter elsewhere meanwhile."""
        at = [layer.param.data_ptr() for layer in layers]
        if not self.fit or at != self.addresses[: len(layers)] or not at:
            return False
        self._call("asterism_to_theta")
        return True

    def _find(self, layers: Sequence[Layer]) -> bool:
        addresses = [layer.param.data_ptr() for layer in layers]
        addresses += [layer.omega.data_ptr() for layer in layers]
        if addresses == self.addresses:
            return self.fit
        self.addresses, self.table = addresses, array("q")
        for layer in layers:
            theta, omega = layer.param.data_ptr(), layer.omega.data_ptr()
            self.table.extend((theta, 0, omega, 0, layer.omega.numel(), UNPRUNED))
        omegas = [layer.omega for layer in layers]
        self.strides = [None if each.is_contiguous() else each.stride() for each in omegas]
        self.fit = all(
            _lies_in(layer.param, strides)
            and layer.param.is_cpu
            and layer.param.dtype is layer.omega.dtype
            for layer, strides in zip(layers, self.strides, strict=True)
        )
        return self.fit

    def _call(self, name: str, *more: int) -> None:
        kernels = library.load()
        assert kernels is not None
        address, length = self.table.buffer_info()
        getattr(kernels, name)(address, length // FIELDS, *more)


def _lies_in(tensor: Tensor | None, strides: tuple[int, ...] | None) -> bool:
    """Whether its numbers lie in memory in that order; of no tensor, yes."""
    if tensor is None:
        return True
    return tensor.is_contiguous() if strides is None else tensor.stride() == strides
