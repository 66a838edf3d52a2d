"""Max-pooling of blocks, forward and backward."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function

from asterism.graph.live.blocks import LANES, Kernels


def halve(value: Tensor, kernels: Kernels) -> Tensor:
    """Max-pooling of 2×2; height and width are even."""
    made: Tensor = _Halving.apply(value, kernels)  # type: ignore[no-untyped-call]
    return made


class _Halving(Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, kernels: Kernels) -> Tensor:
        value = value.contiguous()
        blocks, channels, height, width, _ = value.shape
        sizes = (blocks * channels, height // 2, width // 2)
        made = kernels.memory.empty((blocks, channels, *sizes[1:], LANES))
        kernels.run("halve", sizes, value, made)
        ctx.save_for_backward(value, made)
        ctx.call = sizes, kernels
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        value, made = ctx.saved_tensors
        sizes, kernels = ctx.call
        to_value = kernels.memory.empty(value.shape)
        kernels.run("halve_backward", sizes, value, made, gradients[0].contiguous(), to_value)
        return to_value, None
