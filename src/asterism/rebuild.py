"""A graph and its weights as a torch module again, to be run by torch or exported from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asterism.errors import FormatError
from asterism.graph import Graph, Node


class Rebuilt(nn.Module):
    """Runs the layers of a graph one by one; the weights are buffers, in the graph's order."""

    def __init__(self, graph: Graph, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        super().__init__()
        if graph.unknown:
            raise FormatError(f"there is no operation {', '.join(graph.unknown)} to rebuild")
        self.layers = graph.nodes
        for place, array in enumerate(tensors.values()):
            self.register_buffer(f"w{place}", torch.from_numpy(np.array(array)))

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for node in self.layers:
            inputs = [values[value] for value in node.inputs]
            values.append(_RULES[node.op](node, inputs, node.given(list(self.buffers()))))
        return values[-1]


Weights = list[Any]


def _pair(node: Node, name: str, rank: int) -> tuple[int, ...]:
    return node.pair(name)[2 - rank :]


def _conv(node: Node, x: list[Tensor], weights: Weights) -> Tensor:
    rank = x[0].ndim - 2
    function = F.conv1d if rank == 1 else F.conv2d
    stride, padding, dilation = (_pair(node, n, rank) for n in ("stride", "padding", "dilation"))
    return function(x[0], weights[0], weights[1], stride, padding, dilation, node["groups"])


def _pool(node: Node, x: list[Tensor], weights: Weights) -> Tensor:
    rank = x[0].ndim - 2
    kernel, padding = _pair(node, "kernel", rank), _pair(node, "padding", rank)
    stride = tuple(s or k for s, k in zip(_pair(node, "stride", rank), kernel, strict=True))
    ceil = bool(node["ceil"])
    if node.op == "max_pool":
        pool: Any = F.max_pool1d if rank == 1 else F.max_pool2d
        out: Tensor = pool(x[0], kernel, stride, padding, _pair(node, "dilation", rank), ceil)
    elif rank == 1:
        out = F.avg_pool1d(x[0], kernel, stride, padding, ceil, bool(node["count_padding"]))
    else:
        count, divisor = bool(node["count_padding"]), node["divisor"] or None
        out = F.avg_pool2d(x[0], kernel, stride, padding, ceil, count, divisor)
    return out


def _adaptive(node: Node, x: list[Tensor], weights: Weights) -> Tensor:
    rank = x[0].ndim - 2
    function: Any = getattr(F, f"{node.op}{rank}d")
    out: Tensor = function(x[0], _pair(node, "size", rank))
    return out


def _batch_norm(node: Node, x: list[Tensor], weights: Weights) -> Tensor:
    weight, bias, mean, variance = weights
    return F.batch_norm(x[0], mean, variance, weight, bias, eps=float(node.number("eps")))


def _layer_norm(node: Node, x: list[Tensor], weights: Weights) -> Tensor:
    shape = list(x[0].shape[-node["rank"] :])
    return F.layer_norm(x[0], shape, weights[0], weights[1], float(node.number("eps")))


def _flatten(node: Node, x: list[Tensor], weights: Weights) -> Tensor:
    return x[0].flatten(node["start"], node["end"])


_RULES: dict[str, Callable[[Node, list[Tensor], Weights], Tensor]] = {
    "conv": _conv,
    "linear": lambda node, x, w: F.linear(x[0], w[0], w[1]),
    **dict.fromkeys(["max_pool", "avg_pool"], _pool),
    **dict.fromkeys(["adaptive_avg_pool", "adaptive_max_pool"], _adaptive),
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "relu": lambda node, x, w: F.relu(x[0]),
    "gelu": lambda node, x, w: F.gelu(x[0], approximate="tanh" if node["tanh"] else "none"),
    "silu": lambda node, x, w: F.silu(x[0]),
    "sigmoid": lambda node, x, w: torch.sigmoid(x[0]),
    "tanh": lambda node, x, w: torch.tanh(x[0]),
    "softmax": lambda node, x, w: x[0].softmax(node["dim"]),
    "leaky_relu": lambda node, x, w: F.leaky_relu(x[0], float(node.number("slope"))),
    "clamp": lambda node, x, w: x[0].clamp(node.number("low"), node.number("high")),
    "add": lambda node, x, w: x[0] + x[1],
    "mul": lambda node, x, w: x[0] * x[1],
    "cat": lambda node, x, w: torch.cat(x, node["dim"]),
    "flatten": _flatten,
    "reshape": lambda node, x, w: x[0].reshape(-1, *node.sizes),
    "permute": lambda node, x, w: x[0].permute(0, *node.sizes),
}
