"""The passes of a cut over all weights of a layer, compiled: counting, and the mask.

They take float32 on the CPU, contiguous; elsewhere `selection` does the same by torch.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int64, c_void_p
from dataclasses import dataclass

import torch
from torch import Tensor

from asterism.kernels import library


class _Weights(ctypes.Structure):
    """As in kernels/training/selection.c."""

    _fields_ = (("theta", c_void_p), ("alive", c_void_p), ("size", c_int64))


class _Histogram(ctypes.Structure):
    _fields_ = (
        ("starts", c_void_p),
        ("bins", c_int64),
        ("free_bits", c_int64),
        ("finer", c_int64),
        ("table", c_void_p),
    )


@dataclass(frozen=True)
class Compiled:
    """The weights of one layer on this rank, of which `alive`, if given, is 0 at the dead."""

    kernels: ctypes.CDLL
    theta: Tensor
    alive: Tensor | None

    @staticmethod
    def of(theta: Tensor, alive: Tensor | None) -> Compiled | None:
        """None where the compiled passes cannot take them."""
        kernels = library.load()
        fits = all(each is None or _fits(each) for each in (theta, alive))
        return Compiled(kernels, theta, alive) if kernels is not None and fits else None

    def count(self, table: Tensor, starts: Tensor, free_bits: int, finer: int) -> None:
        """Of each part of each bin: weights, the sum of their trailing bits, and of the squares.

        table      where these numbers are added, contiguous
        starts     the bits with which each bin begins, from small to large
        free_bits  how many trailing bits differ in a bin
        finer      how many differ in a part of it
        """
        starts = starts.to(torch.int32).contiguous()
        histogram = _Histogram(starts.data_ptr(), len(starts), free_bits, finer, table.data_ptr())
        self.kernels.asterism_count_magnitudes(
            ctypes.byref(self._weights()), ctypes.byref(histogram)
        )

    def mask(self, least: int, mask: Tensor) -> None:
        """Fills `mask`: true where a magnitude has at least these bits and may be chosen."""
        self.kernels.asterism_mask(ctypes.byref(self._weights()), least, mask.data_ptr())

    def _weights(self) -> _Weights:
        alive = 0 if self.alive is None else self.alive.data_ptr()
        return _Weights(self.theta.data_ptr(), alive, self.theta.numel())


def _fits(tensor: Tensor) -> bool:
    return tensor.is_cpu and tensor.dtype is torch.float32 and tensor.is_contiguous()
