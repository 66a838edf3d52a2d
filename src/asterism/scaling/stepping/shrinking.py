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

SMALL = 2**19  # weights of a layer that one thread takes: larger ones gain from torch's threads
AT_ONCE = 2**24  # weights of one foreach call, which makes two numbers for each
ROW = struct.Struct("qqqqqffff")  # a `Shrunk` of kernels/training/shrink.c

Pulled = tuple[Layer, float]


def shrink(pulled: Sequence[Pulled], *, by_psi: bool = False, renew: bool = False) -> None:
    """The proximal step of each layer, on whatever its parameter holds.

    pulled  layers, each with how far its step goes
    by_psi  whether the step of each weight is multiplied by the layer's psi
    renew   whether psi is computed from theta first
    """
    kernels = library.load()
    rows, together = bytearray(), []
    for layer, pull in pulled:
        offset = _offset(layer) if renew else 0.0
        if layer.groups is not None or offset is None:
            _shrink_alone(layer, pull, by_psi, renew)
        elif kernels and _compiles(layer, by_psi):
            rows += _row(layer, pull, by_psi, offset)
        else:
            together.append((layer, pull))
    if rows:
        assert kernels is not None
        kernels.asterism_shrink(bytes(rows), len(rows) // ROW.size)
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


def _offset(layer: Layer) -> float | None:
    offset = layer.penalty.psi_offset(layer.scale)
    return None if offset is None else float(offset)


def _shrink_alone(layer: Layer, pull: float, by_psi: bool, renew: bool) -> None:
    if renew:
        layer.renew_psi()
    layer.shrink(layer.psi * pull if by_psi and layer.psi is not None else pull)


# ---------------------------------------------------------------------- compiled


def _compiles(layer: Layer, by_psi: bool) -> bool:
    """Whether its numbers are float32 on the CPU, and in one order in memory."""
    param = local(layer.param)
    if not (param.is_cpu and param.dtype is torch.float32 and param.numel() <= SMALL):
        return False
    other = local(layer.psi if by_psi and layer.psi is not None else layer.omega)
    return param.stride() == other.stride()


def _row(layer: Layer, pull: float, by_psi: bool, offset: float) -> bytes:
    psi = 0 if not by_psi or layer.psi is None else local(layer.psi).data_ptr()
    param, order = local(layer.param), layer.penalty.order
    at_zero = _at_zero(offset, torch.float32) if offset else 1.0
    numbers = offset, at_zero, pull, 1 + 2 * pull
    return ROW.pack(param.data_ptr(), psi, param.numel(), order, bool(offset), *numbers)


def _at_zero(offset: float, dtype: torch.dtype) -> float:
    """psi of a weight that is zero, rounded as psi is."""
    return torch.tensor(offset, dtype=dtype).reciprocal_().item()


# ---------------------------------------------------------------------- by torch


def _portions(pulled: Sequence[Pulled]) -> Iterator[list[Pulled]]:
    """Layers of one order, no more weights at once than memory has room for."""
    for order in (1, 2):
        some: list[Pulled] = []
        for layer, pull in pulled:
            if layer.penalty.order == order:
                some.append((layer, pull))
                if sum(each.param.numel() for each, _ in some) >= AT_ONCE:
                    yield some
                    some = []
        if some:
            yield some


def _renew_psi(some: Sequence[Pulled]) -> None:
    """psi ← 1 / (|theta|^order + offset) / psi(0)."""
    params, psis = _params(some), _psis(some)
    offsets = [_offset(layer) or 0.0 for layer, _ in some]
    sizes = torch._foreach_abs(params) if _order(some) == 1 else torch._foreach_mul(params, params)
    torch._foreach_add_(sizes, offsets)
    torch._foreach_reciprocal_(sizes)
    at_zero = [_at_zero(each, psi.dtype) for each, psi in zip(offsets, psis, strict=True)]
    torch._foreach_div_(sizes, at_zero)
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
