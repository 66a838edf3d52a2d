"""Every operation in plain numpy: slow and plain, what the kernels are measured against.

Runs where no compiled kernel loads, and for inputs that are not finite: a pruned weight times
infinity is not zero, so there no weight may be skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from asterism.graph.network import Graph, Node
from asterism.graph.shapes import Array, Given, Shape, image, kernel
from asterism.graph.windows import find


def run(graph: Graph, shapes: Sequence[Shape], weights: Sequence[Array], x: Array) -> Array:
    """The network's answer to a batch; `shapes` as `infer` found them."""
    values = [x]
    with np.errstate(all="ignore"):
        for node, shape in zip(graph.nodes, shapes[1:], strict=True):
            inputs = [values[value] for value in node.inputs]
            out = _RULES[node.op](node, inputs, node.given(weights), shape)
            values.append(np.ascontiguousarray(out, np.float32))
    return values[-1]


def _conv(node: Node, inputs: list[Array], given: Given, shape: Shape) -> Array:
    assert given[0] is not None
    weight, groups = kernel(given[0]), node["groups"]
    batch, outputs = len(inputs[0]), len(weight)
    _, height, width = image(shape)
    x = inputs[0].reshape(batch, *image(inputs[0].shape[1:]))
    (ph, pw), (sh, sw), (dh, dw) = (node.pair(n) for n in ("padding", "stride", "dilation"))
    x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    out = np.zeros((batch, groups, outputs // groups, height * width), np.float32)
    for i, j in np.ndindex(*weight.shape[2:]):
        seen = x[:, :, i * dh : i * dh + (height - 1) * sh + 1 : sh]
        seen = seen[:, :, :, j * dw : j * dw + (width - 1) * sw + 1 : sw]
        columns = seen.reshape(batch, groups, weight.shape[1], height * width)
        out += weight[:, :, i, j].reshape(1, groups, outputs // groups, weight.shape[1]) @ columns
    if given[1] is not None:
        out += given[1].reshape(groups, -1, 1)
    return out.reshape(batch, *shape)


def _linear(node: Node, inputs: list[Array], given: Given, shape: Shape) -> Array:
    assert given[0] is not None
    out: Array = inputs[0] @ given[0].T
    return out if given[1] is None else out + given[1]


def _pool(node: Node, inputs: list[Array], given: Given, shape: Shape) -> Array:
    x = inputs[0].reshape(len(inputs[0]), *image(inputs[0].shape[1:]))
    _, height, width = image(shape)
    found = find(node, (x.shape[2], x.shape[3]), (height, width))
    out = np.empty((*x.shape[:2], height, width), np.float32)
    for i, j in np.ndindex(height, width):
        (top, bottom), (left, right) = found.rows[i], found.columns[j]
        window = x[:, :, top : bottom : found.dilation[0], left : right : found.dilation[1]]
        if "max" in node.op:
            out[:, :, i, j] = window.max((2, 3), initial=-np.inf)
        else:
            out[:, :, i, j] = window.sum((2, 3)) * found.factor[i, j]
    return out.reshape(len(x), *shape)


def scale_and_shift(node: Node, given: Given) -> tuple[Array, Array]:
    """A batch norm as y = x·scale + shift, computed in float64."""
    weight, bias, mean, variance = given
    assert mean is not None
    assert variance is not None
    scale = 1 / np.sqrt(variance.astype(np.float64) + node.number("eps"))
    scale = scale if weight is None else scale * weight
    shift = (0 if bias is None else bias) - mean * scale
    return scale.astype(np.float32), np.asarray(shift, np.float32)


def _batch_norm(node: Node, inputs: list[Array], given: Given, shape: Shape) -> Array:
    scale, shift = scale_and_shift(node, given)
    spread = (-1, *[1] * (len(shape) - 1))
    return inputs[0] * scale.reshape(spread) + shift.reshape(spread)


def _layer_norm(node: Node, inputs: list[Array], given: Given, shape: Shape) -> Array:
    axes = tuple(range(-node["rank"], 0))
    x = inputs[0].astype(np.float64)
    x = x - x.mean(axes, keepdims=True)
    x = x / np.sqrt((x * x).mean(axes, keepdims=True) + node.number("eps"))
    x = x if given[0] is None else x * given[0]
    out: Array = x if given[1] is None else x + given[1]
    return out


def _softmax(node: Node, inputs: list[Array], given: Given, shape: Shape) -> Array:
    powers = np.exp(inputs[0] - inputs[0].max(node["dim"], keepdims=True))
    out: Array = powers / powers.sum(node["dim"], keepdims=True)
    return out


def _gelu(x: Array, tanh: int) -> Array:
    if tanh:
        out: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    elif x.size:
        erf = np.vectorize(math.erf, otypes=[np.float64])
        out = 0.5 * x * (1 + erf(x / math.sqrt(2)))
    else:
        out = x
    return out


def _leaky_relu(node: Node, x: Array) -> Array:
    return np.where(x < 0, x * np.float32(node.number("slope")), x)


def _activation(function: Callable[[Node, Array], Array]) -> Callable[..., Array]:
    return lambda node, inputs, given, shape: function(node, inputs[0])


def _cat(node: Node, inputs: list[Array], given: Given, shape: Shape) -> Array:
    return np.concatenate(inputs, node["dim"])


def _reshape(node: Node, inputs: list[Array], given: Given, shape: Shape) -> Array:
    return inputs[0].reshape(len(inputs[0]), *shape)


def _permute(node: Node, inputs: list[Array], given: Given, shape: Shape) -> Array:
    return inputs[0].transpose(0, *node.sizes)


_RULES: dict[str, Callable[[Node, list[Array], Given, Shape], Array]] = {
    "conv": _conv,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "softmax": _softmax,
    "cat": _cat,
    "permute": _permute,
    "flatten": _reshape,
    "reshape": _reshape,
    "add": lambda node, inputs, given, shape: inputs[0] + inputs[1],
    "mul": lambda node, inputs, given, shape: inputs[0] * inputs[1],
    "relu": _activation(lambda node, x: np.maximum(x, 0)),
    "gelu": _activation(lambda node, x: _gelu(x, node["tanh"])),
    "silu": _activation(lambda node, x: x / (1 + np.exp(-x))),
    "sigmoid": _activation(lambda node, x: np.reciprocal(1 + np.exp(-x))),
    "tanh": _activation(lambda node, x: np.tanh(x)),
    "leaky_relu": _activation(_leaky_relu),
    "clamp": _activation(lambda node, x: np.clip(x, node.number("low"), node.number("high"))),
    **dict.fromkeys(["max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool"], _pool),
}
