"""torch's recurrent layers, for a while by the shapes of their results alone.

To find these shapes `torch.export` walks through a layer step by step, which takes some ten
milliseconds for each step of a sequence. Owns the short cut. Where a version of torch has no such
place for it, tracing takes longer and finds the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def recurrent_shapes() -> Iterator[None]:
    """Has torch make empty results of the right shapes in place of those of LSTM and GRU."""
    aten = torch.ops.aten
    with _computed_by(aten.lstm.input, _lstm), _computed_by(aten.gru.input, _gru):
        yield


@contextmanager
def _computed_by(operation: Any, function: Callable[..., Any]) -> Iterator[None]:
    """Has an operation computed by `function` wherever torch computes it by Python."""
    kernels = getattr(operation, "py_kernels", None)
    chosen = getattr(operation, "_dispatch_cache", None)  # of these, which torch remembers
    if kernels is None or chosen is None:
        yield
        return
    before = dict(kernels)
    kernels.update(dict.fromkeys(kernels, function))
    chosen.clear()
    try:
        yield
    finally:
        kernels.update(before)
        chosen.clear()


def _lstm(x: Tensor, hx: list[Tensor], *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _steps(x, hx[0], *rest), torch.empty_like(hx[0]), torch.empty_like(hx[1])


def _gru(x: Tensor, hx: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _steps(x, hx, *rest), torch.empty_like(hx)


def _steps(x: Tensor, state: Tensor, *rest: Any) -> Tensor:
    """What is made of the steps; torch's last arguments are `bidirectional` and `batch_first`."""
    *_, both, batch_first = rest
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    made = x.new_empty(steps, batch, state.shape[-1] * (2 if both else 1))
    return made.transpose(0, 1) if batch_first else made
