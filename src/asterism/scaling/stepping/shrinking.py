"""The proximal step of all layers together: one compiled pass, or one of torch's foreach calls.

The compiled pass takes float32 on the CPU and rounds as torch does. Penalties of another form than
`Penalty.psi_offset` tells, and groups, take their step a layer at a time.
"""

from __future__ import annotations

import struct
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from asterism.kernels import library
from asterism.scaling.layer import Layer
from asterism.weights.sharding import local

AT_ONCE = 2**24  # weights of one foreach call, which makes two numbers for each
ROW = struct.Struct("qqqqqff")  # a `Shrunk` of kernels/training/shrink.c


class Psi(NamedTuple):
    """psi = 1 / (z^exponent + offset), and what it is at 0, rounded."""

    offset: float = 0.0
    at_zero: float = 1.0
    exponent: float = 1.0


class Shrinking:
    """Layers that take a proximal step together, sorted once, for as long as none of them changes.

    layers  on whatever their parameters hold, theta or q
    by_psi  whether the step of each weight is multiplied by the layer's psi
    renew   whether psi is computed from theta first
    """

    def __init__(
        self, layers: Sequence[Layer], *, by_psi: bool = False, renew: bool = False
    ) -> None:
        self.layers, self.by_psi, self.renew = layers, by_psi, renew
        found = [_psi_of(layer) if renew else Psi() for layer in layers]
        self.psi = [each or Psi() for each in found]
        self.alone = [
            at for at, layer in enumerate(layers) if layer.groups is not None or found[at] is None
        ]
        self._sort()

    def step(self, pulls: Sequence[float]) -> None:
        """The proximal step of every layer.

        pulls  how far the step of each layer goes
        """
        if self.thetas != self._addresses():
            self._sort()
        for at in self.alone:
            layer, pull = self.layers[at], pulls[at]
            if self.renew:
                layer.renew_psi()
            layer.shrink(layer.psi * pull if self.by_psi and layer.psi is not None else pull)
        if self.compiled:
            kernels = library.load()
            assert kernels is not None
            far = array("d", [pulls[at] for at in self.compiled])
            kernels.asterism_shrink(self.rows, len(far), far.buffer_info()[0])
        for some in self.portions:
            if self.renew:
                self._renew_psi(some)
            self._shrink(some, [pulls[at] for at in some])

    def _sort(self) -> None:
        """Which layers the compiled pass takes, where they are in memory now."""
        alone = {*self.alone}
        others = [at for at in range(len(self.layers)) if at not in alone]
        compiled = library.load() is not None
        self.compiled = [at for at in others if compiled and self._is_compiled(at)]
        self.rows = b"".join(self._row(self.layers[at], self.psi[at]) for at in self.compiled)
        self.thetas = self._addresses()
        by_torch = [at for at in others if at not in {*self.compiled}]
        self.portions = [
            some for like in self._alike(by_torch) for some in _portions(self.layers, like)
        ]

    def _alike(self, places: Sequence[int]) -> Iterable[list[int]]:
        """Layers whose psi and step are the same formula."""
        alike: dict[tuple[int, bool], list[int]] = defaultdict(list)
        for at in places:
            order = self.layers[at].penalty.order
            alike[order, self.psi[at].exponent == order].append(at)
        return alike.values()

    # ------------------------------------------------------------------ compiled

    def _is_compiled(self, at: int) -> bool:
        layer = self.layers[at]
        return _is_plain(layer) and (not self.renew or self.psi[at].exponent == layer.penalty.order)

    def _addresses(self) -> list[int]:
        return [self.layers[at].param.data_ptr() for at in self.compiled]

    def _row(self, layer: Layer, numbers: Psi) -> bytes:
        param, psi = layer.param, layer.psi if self.by_psi else None
        at = 0 if psi is None else psi.data_ptr()
        about = param.numel(), layer.penalty.order, self.renew
        return ROW.pack(param.data_ptr(), at, *about, numbers.offset, numbers.at_zero)

    # ------------------------------------------------------------------ by torch

    def _renew_psi(self, some: Sequence[int]) -> None:
        """psi ← 1 / (|theta|^exponent + offset) / psi(0)."""
        params = self._params(some)
        exponents = [self.psi[at].exponent for at in some]
        if exponents[0] == self._order(some) == 2:
            sizes = torch._foreach_mul(params, params)
        else:
            sizes = torch._foreach_abs(params)
            if exponents[0] != self._order(some):
                torch._foreach_pow_(sizes, exponents)
        torch._foreach_add_(sizes, [self.psi[at].offset for at in some])
        torch._foreach_reciprocal_(sizes)
        torch._foreach_div_(sizes, [self.psi[at].at_zero for at in some])
        torch._foreach_copy_(self._psis(some), sizes)

    def _shrink(self, some: Sequence[int], pulls: list[float]) -> None:
        params = self._params(some)
        if self._order(some) == 2:
            if self.by_psi:
                divisors = torch._foreach_mul(self._psis(some), pulls)
                torch._foreach_mul_(divisors, 2.0)
                torch._foreach_add_(divisors, 1.0)
                torch._foreach_div_(params, divisors)
            else:
                torch._foreach_div_(params, [1 + 2 * pull for pull in pulls])
            return
        if self.by_psi:
            amounts = torch._foreach_mul(self._psis(some), pulls)
            moved = torch._foreach_maximum(params, torch._foreach_neg(amounts))
            torch._foreach_minimum_(moved, amounts)
        else:
            moved = torch._foreach_maximum(params, [-pull for pull in pulls])
            torch._foreach_minimum_(moved, pulls)
        torch._foreach_sub_(params, moved)

    def _order(self, some: Sequence[int]) -> int:
        return self.layers[some[0]].penalty.order

    def _params(self, some: Sequence[int]) -> list[Tensor]:
        return [local(self.layers[at].param) for at in some]

    def _psis(self, some: Sequence[int]) -> list[Tensor]:
        psis = [self.layers[at].psi for at in some]
        return [local(psi) for psi in psis if psi is not None]


def shrink_block(q: Tensor, order: int, pull: float) -> None:
    """The proximal step of a part of a layer, in q-space."""
    if order == 2:
        q.div_(1 + 2 * pull)
    else:
        q.sub_(q.clamp(-pull, pull))


def _psi_of(layer: Layer) -> Psi | None:
    """None where the penalty has another psi."""
    offset, exponent = layer.penalty.psi_offset(layer.scale), layer.penalty.psi_exponent
    if offset is None:
        return None
    smallest = torch.zeros((), dtype=layer.omega.dtype) ** exponent  # 1 where the exponent is 0
    return Psi(float(offset), (smallest + offset).reciprocal_().item(), exponent)


def _is_plain(layer: Layer) -> bool:
    """Whether it is small and its numbers fill their memory, in the order of psi, if any."""
    param, other = layer.param, layer.omega if layer.psi is None else layer.psi
    contiguous = param.is_contiguous() and other.is_contiguous()
    return layer.is_small and param.is_cpu and (contiguous or param.stride() == other.stride())


def _portions(layers: Sequence[Layer], places: Sequence[int]) -> Iterator[list[int]]:
    """No more weights at once than memory has room for."""
    some: list[int] = []
    weights = 0
    for at in places:
        some.append(at)
        weights += layers[at].param.numel()
        if weights >= AT_ONCE:
            yield some
            some, weights = [], 0
    if some:
        yield some
