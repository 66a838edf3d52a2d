"""The proximal step of all layers together: one compiled pass, or one of torch's foreach calls.

The compiled pass takes float32 on the CPU and rounds as torch does. Penalties of another form than
`Penalty.psi_offset` tells, and groups, take their step a layer at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from asterism.kernels import library
from asterism.scaling.layer import Layer
from asterism.weights.sharding import local

AT_ONCE = 2**24  # weights of one foreach call, which makes two numbers for each
ROW = struct.Struct("qqqqqffff")  # a `Shrunk` of kernels/training/shrink.c

Pulled = tuple[Layer, float]


def shrink(pulled: Sequence[Pulled], *, by_psi: bool = False, renew: bool = False) -> None:
    """The proximal step of each layer, on whatever its parameter holds.

    pulled  layers, each with how far its step goes
    by_psi  whether the step of each weight is multiplied by the layer's psi
    renew   whether psi is computed from theta first
    """
    if not pulled:
        return
    kernels = library.load()
    rows, together = [], []
    for layer, pull in pulled:
        if layer.groups is not None or (renew and layer.psi_numbers is None):
            _shrink_alone(layer, pull, by_psi, renew)
        elif kernels and layer.is_small and _same_order(layer):
            rows.append(_row(layer, pull, by_psi, renew))
        else:
            together.append((layer, pull))
    if rows:
        assert kernels is not None
        kernels.asterism_shrink(b"".join(rows), len(rows))
    for some in _portions(together):
        if renew:
            _renew_psi(some)
        _shrink_together(some, by_psi)


def shrink_block(q: Tensor, order: int, pull: float) -> None:
    """The same for a part of a layer, in q-space."""
    if order == 2:
        q.div_(1 + 2 * pull)
    else:
        q.sub_(q.clamp(-pull, pull))


def _shrink_alone(layer: Layer, pull: float, by_psi: bool, renew: bool) -> None:
    if renew:
        layer.renew_psi()
    layer.shrink(layer.psi * pull if by_psi and layer.psi is not None else pull)


# ---------------------------------------------------------------------- compiled


def _same_order(layer: Layer) -> bool:
    """Whether the numbers of the parameter fill its memory, as those of psi, if any, do."""
    param, other = layer.param, layer.omega if layer.psi is None else layer.psi
    contiguous = param.is_contiguous() and other.is_contiguous()
    return param.is_cpu and (contiguous or param.stride() == other.stride())


def _row(layer: Layer, pull: float, by_psi: bool, renew: bool) -> bytes:
    param, order = layer.param, layer.penalty.order
    psi = 0 if not by_psi or layer.psi is None else layer.psi.data_ptr()
    offset, at_zero = (layer.psi_numbers if renew else None) or (0.0, 1.0)
    numbers = offset, at_zero, pull, 1 + 2 * pull
    return ROW.pack(param.data_ptr(), psi, param.numel(), order, renew, *numbers)


# ---------------------------------------------------------------------- by torch


def _portions(pulled: Sequence[Pulled]) -> Iterator[list[Pulled]]:
    """Layers of one order, no more weights at once than memory has room for."""
    for order in (1, 2):
        some: list[Pulled] = []
        weights = 0
        for layer, pull in pulled:
            if layer.penalty.order != order:
                continue
            some.append((layer, pull))
            weights += layer.param.numel()
            if weights >= AT_ONCE:
                yield some
                some, weights = [], 0
        if some:
            yield some


def _renew_psi(some: Sequence[Pulled]) -> None:
    """psi ← 1 / (|theta|^order + offset) / psi(0)."""
    params, psis = _params(some), _psis(some)
    numbers = [layer.psi_numbers or (0.0, 1.0) for layer, _ in some]
    sizes = torch._foreach_abs(params) if _order(some) == 1 else torch._foreach_mul(params, params)
    torch._foreach_add_(sizes, [offset for offset, _ in numbers])
    torch._foreach_reciprocal_(sizes)
    torch._foreach_div_(sizes, [at_zero for _, at_zero in numbers])
    torch._foreach_copy_(psis, sizes)


def _shrink_together(some: Sequence[Pulled], by_psi: bool) -> None:
    params, pulls = _params(some), [pull for _, pull in some]
    if _order(some) == 2:
        if by_psi:
            divisors = torch._foreach_mul(_psis(some), pulls)
            torch._foreach_mul_(divisors, 2.0)
            torch._foreach_add_(divisors, 1.0)
            torch._foreach_div_(params, divisors)
        else:
            torch._foreach_div_(params, [1 + 2 * pull for pull in pulls])
        return
    if by_psi:
        amounts = torch._foreach_mul(_psis(some), pulls)
        moved = torch._foreach_maximum(params, torch._foreach_neg(amounts))
        torch._foreach_minimum_(moved, amounts)
    else:
        moved = torch._foreach_maximum(params, [-pull for pull in pulls])
        torch._foreach_minimum_(moved, pulls)
    torch._foreach_sub_(params, moved)


def _order(some: Sequence[Pulled]) -> int:
    return some[0][0].penalty.order


def _params(some: Sequence[Pulled]) -> list[Tensor]:
    return [local(layer.param.detach()) for layer, _ in some]


def _psis(some: Sequence[Pulled]) -> list[Tensor]:
    return [local(layer.psi) for layer, _ in some if layer.psi is not None]
