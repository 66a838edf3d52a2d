"""A graph and its weights as a torch module again, to be run by torch or exported from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from asterism.errors import FormatError
from asterism.graph.network import Graph, Node
from asterism.graph.shapes import Shape, infer


class Rebuilt(nn.Module):
    """Runs the layers of a graph one by one, as in evaluation.

    Convolutions, linear layers and batch norms are torch's own modules, so that `compact` knows
    them; other weights are buffers, in the graph's order.
    """

    def __init__(self, graph: Graph, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        super().__init__()
        if graph.unknown:
            raise FormatError(f"there is no operation {', '.join(graph.unknown)} to rebuild")
        self.nodes, self.weights = graph.nodes, len(tensors)
        # Of each layer's first input, without the batch: tracing must not ask the values for it.
        shapes = infer(graph, list(tensors.values()))
        self.shapes = [shapes[node.inputs[0]] for node in graph.nodes]
        arrays = [torch.from_numpy(np.array(array)) for array in tensors.values()]
        params = [nn.Parameter(array, requires_grad=False) for array in arrays]
        for number, node in enumerate(graph.nodes):
            if node.op in _MODULES:
                self.add_module(f"layer{number}", _MODULES[node.op](node, node.given(params)))
        used = {place for node in graph.nodes if node.op not in _MODULES for place in node.weights}
        for place, array in enumerate(arrays):
            if place in used:
                self.register_buffer(f"w{place}", array)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        buffers = [getattr(self, f"w{place}", None) for place in range(self.weights)]
        for number, node in enumerate(self.nodes):
            inputs = [values[value] for value in node.inputs]
            if node.op in _MODULES:
                values.append(getattr(self, f"layer{number}")(*inputs))
            elif node.op in _SHAPED:
                shape = self.shapes[number]
                values.append(_SHAPED[node.op](node, inputs[0], node.given(buffers), shape))
            else:
                values.append(_RULES[node.op](node, inputs, node.given(buffers)))
        return values[-1]


def rebuild(graph: Graph, weights: Sequence[npt.NDArray[Any]]) -> Rebuilt:
    """The module of a graph whose weights are in the graph's own order."""
    return Rebuilt(graph, {str(place): array for place, array in enumerate(weights)})


Weights = list[Any]


class _AnyNorm(_BatchNorm):
    """Of values of any rank."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass


def _conv(node: Node, weights: Weights) -> nn.Module:
    weight, bias = weights[:2]
    rank, groups = weight.ndim - 2, node["groups"]
    stride, padding, dilation = (_pair(node, n, rank) for n in ("stride", "padding", "dilation"))
    make: Any = nn.Conv1d if rank == 1 else nn.Conv2d
    module: nn.Module = make(
        *(weight.shape[1] * groups, weight.shape[0], tuple(weight.shape[2:]), stride, padding),
        dilation=dilation,
        groups=groups,
        bias=bias is not None,
        device="meta",
    )
    return _with(module, weight, bias)


def _linear(node: Node, weights: Weights) -> nn.Module:
    weight, bias = weights[:2]
    outputs, inputs = weight.shape
    return _with(nn.Linear(inputs, outputs, bias is not None, device="meta"), weight, bias)


def _batch_norm(node: Node, weights: Weights) -> nn.Module:
    weight, bias, mean, variance = weights
    # What a network lacks is what changes nothing: then the module is one that `compact` knows.
    weight = torch.ones_like(variance) if weight is None else weight
    bias = torch.zeros_like(mean) if bias is None else bias
    norm = _AnyNorm(len(mean), eps=float(node.number("eps")), device="meta")
    norm.running_mean, norm.running_var = mean.data, variance.data
    norm.num_batches_tracked = None
    return _with(norm, weight, bias)


def _with(module: nn.Module, weight: Tensor, bias: Tensor | None) -> nn.Module:
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None:
            param = given if isinstance(given, nn.Parameter) else nn.Parameter(given)
            setattr(module, name, param)
    return module.requires_grad_(False)


_MODULES: dict[str, Callable[[Node, Weights], nn.Module]] = {
    "conv": _conv,
    "linear": _linear,
    "batch_norm": _batch_norm,
}


def _pair(node: Node, name: str, rank: int) -> tuple[int, ...]:
    return node.pair(name)[2 - rank :]


def _pool(node: Node, x: Tensor, weights: Weights, shape: Shape) -> Tensor:
    rank = len(shape) - 1
    kernel, padding = _pair(node, "kernel", rank), _pair(node, "padding", rank)
    stride = tuple(s or k for s, k in zip(_pair(node, "stride", rank), kernel, strict=True))
    ceil = bool(node["ceil"])
    if node.op == "max_pool":
        pool: Any = F.max_pool1d if rank == 1 else F.max_pool2d
        out: Tensor = pool(x, kernel, stride, padding, _pair(node, "dilation", rank), ceil)
    elif rank == 1:
        out = F.avg_pool1d(x, kernel, stride, padding, ceil, bool(node["count_padding"]))
    else:
        count, divisor = bool(node["count_padding"]), node["divisor"] or None
        out = F.avg_pool2d(x, kernel, stride, padding, ceil, count, divisor)
    return out


def _adaptive(node: Node, x: Tensor, weights: Weights, shape: Shape) -> Tensor:
    rank = len(shape) - 1
    function: Any = getattr(F, f"{node.op}{rank}d")
    out: Tensor = function(x, _pair(node, "size", rank))
    return out


def _layer_norm(node: Node, x: Tensor, weights: Weights, shape: Shape) -> Tensor:
    last = list(shape[-node["rank"] :])
    return F.layer_norm(x, last, weights[0], weights[1], float(node.number("eps")))


def _flatten(node: Node, x: list[Tensor], weights: Weights) -> Tensor:
    return x[0].flatten(node["start"], node["end"])


_SHAPED: dict[str, Callable[[Node, Tensor, Weights, Shape], Tensor]] = {
    **dict.fromkeys(["max_pool", "avg_pool"], _pool),
    **dict.fromkeys(["adaptive_avg_pool", "adaptive_max_pool"], _adaptive),
    "layer_norm": _layer_norm,
}
_RULES: dict[str, Callable[[Node, list[Tensor], Weights], Tensor]] = {
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
