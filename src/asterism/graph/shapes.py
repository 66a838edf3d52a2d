"""The shape of every value of a graph, and the check that a graph and its weights fit together.

Owns the sizes: whoever runs a graph that passed here need not look at them again. Shapes are those
of one example, without the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from asterism.errors import FormatError
from asterism.graph.network import OPERATIONS, Graph, Node

Array = npt.NDArray[np.float32]
Shape = tuple[int, ...]
MAX_SIZE = 2**28  # numbers in one value or window: a gigabyte


def infer(graph: Graph, weights: Sequence[Array]) -> list[Shape]:
    """The shapes of the input and of each node's result; FormatError where they do not fit.

    >>> from asterism.graph.network import Node
    >>> infer(Graph((4,), (Node("linear", (0,), (0,)),)), [np.zeros((3, 4), np.float32)])
    [(4,), (3,)]
    """
    if graph.unknown:
        raise FormatError(f"the runtime has no operation {', '.join(graph.unknown)}")
    if not graph.nodes:
        raise FormatError("the graph has no layers")
    shapes = [_sized(graph.input_shape, "the input")]
    for place, node in enumerate(graph.nodes):
        name = f"layer {place} ({node.op})"
        if any(not 0 <= value <= place for value in node.inputs):
            raise FormatError(f"{name} reads a value that does not exist")
        for weight in node.weights:
            if weight is not None and not 0 <= weight < len(weights):
                raise FormatError(f"{name} needs weight {weight} of only {len(weights)}")
        arity = OPERATIONS[node.op].arity
        if not node.inputs or (arity > 0 and len(node.inputs) != arity):
            raise FormatError(f"{name} has {len(node.inputs)} inputs")
        given = node.given(weights)
        inputs = [shapes[value] for value in node.inputs]
        try:
            shape = _RULES[node.op](node, inputs, given)
        except (_MisfitError, ValueError, IndexError) as error:
            raise FormatError(
                f"{name} does not fit its input of shape {inputs[0]}: {error}"
            ) from None
        shapes.append(_sized(shape, name))
    return shapes


class _MisfitError(Exception):
    """Says which size is wrong."""


def _sized(shape: Shape, name: str) -> Shape:
    if any(size < 0 for size in shape) or math.prod(shape) > MAX_SIZE:
        raise FormatError(f"{name} has the impossible shape {shape}")
    return shape


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise _MisfitError(what)


def image(shape: Shape) -> tuple[int, int, int]:
    """Channels, height, width; a signal of one dimension has height 1."""
    _need(len(shape) in (2, 3), "channels and one or two dimensions are needed")
    return (shape[0], 1, shape[1]) if len(shape) == 2 else (shape[0], shape[1], shape[2])


def kernel(weight: Array) -> Array:
    """A convolution's weight as (outputs, inputs of a group, height, width)."""
    return weight[:, :, None] if weight.ndim == 3 else weight


def _like(shape: Shape, channels: int, height: int, width: int) -> Shape:
    return (channels, width) if len(shape) == 2 else (channels, height, width)


Given = list[Array | None]


def _conv(node: Node, inputs: list[Shape], given: Given) -> Shape:
    weight, bias = given
    assert_weight = weight is not None and weight.ndim == len(inputs[0]) + 1
    _need(assert_weight, "its weight is missing or of another rank")
    assert weight is not None
    channels, *sizes = image(inputs[0])
    outputs, per_group, *window = kernel(weight).shape
    groups = node["groups"]
    _need(groups > 0 and channels == per_group * groups, f"weight {weight.shape}, {groups} groups")
    _need(outputs % groups == 0, f"{outputs} outputs in {groups} groups")
    _need(bias is None or bias.shape == (outputs,), "its bias has another size")
    found = []
    for size, k, axis in zip(sizes, window, "hw", strict=True):
        stride, padding, dilation = (node[f"{n}_{axis}"] for n in ("stride", "padding", "dilation"))
        _need(stride > 0 and padding >= 0 and dilation > 0 and k > 0, "its settings")
        reach = size + 2 * padding - dilation * (k - 1) - 1
        _need(
            0 <= reach <= MAX_SIZE and dilation <= MAX_SIZE, "the kernel is larger than the input"
        )
        found.append(reach // stride + 1)
    return _like(inputs[0], outputs, *found)


def _linear(node: Node, inputs: list[Shape], given: Given) -> Shape:
    weight, bias = given
    _need(weight is not None and weight.ndim == 2, "its weight is missing or not a matrix")
    assert weight is not None
    _need(bool(inputs[0]) and inputs[0][-1] == weight.shape[1], f"weight {weight.shape}")
    _need(bias is None or bias.shape == weight.shape[:1], "its bias has another size")
    return (*inputs[0][:-1], weight.shape[0])


def _pool(node: Node, inputs: list[Shape], given: Given) -> Shape:
    channels, *sizes = image(inputs[0])
    found = []
    for size, axis in zip(sizes, "hw", strict=True):
        k, padding = node[f"kernel_{axis}"], node[f"padding_{axis}"]
        stride = node[f"stride_{axis}"] or k
        dilation = node[f"dilation_{axis}"] if node.op == "max_pool" else 1
        _need(k > 0 and stride > 0 and dilation > 0 and 0 <= padding <= k // 2, "its settings")
        reach = size + 2 * padding - dilation * (k - 1) - 1
        _need(reach >= 0, "the window is larger than the input")
        count = reach // stride + 1
        if node["ceil"] and reach % stride and count * stride < size + padding:
            count += 1
        found.append(count)
    if node.op == "avg_pool":
        _need(node["divisor"] >= 0, "its settings")
    return _like(inputs[0], channels, *found)


def _adaptive(node: Node, inputs: list[Shape], given: Given) -> Shape:
    channels, height, width = image(inputs[0])
    sizes = node.pair("size")
    _need(min(sizes) > 0 and height > 0 and width > 0, "its settings")
    return _like(inputs[0], channels, *sizes)


def _batch_norm(node: Node, inputs: list[Shape], given: Given) -> Shape:
    _need(bool(inputs[0]), "channels are needed")
    _need(given[2] is not None and given[3] is not None, "mean or variance is missing")
    _need(all(w is None or w.shape == inputs[0][:1] for w in given), "weights of another size")
    return inputs[0]


def _layer_norm(node: Node, inputs: list[Shape], given: Given) -> Shape:
    rank = node["rank"]
    _need(0 < rank <= len(inputs[0]), "its rank")
    _need(all(w is None or w.shape == inputs[0][-rank:] for w in given), "weights of another size")
    return inputs[0]


def _same(node: Node, inputs: list[Shape], given: Given) -> Shape:
    if node.op == "softmax":
        _need(-len(inputs[0]) <= node["dim"] < 0, "its dimension")
    _need(all(shape == inputs[0] for shape in inputs), f"shapes {inputs}")
    return inputs[0]


def _cat(node: Node, inputs: list[Shape], given: Given) -> Shape:
    axis = node["dim"] - 1
    _need(0 <= axis < len(inputs[0]), "its dimension")
    for shape in inputs:
        same = shape[:axis] + shape[axis + 1 :] == inputs[0][:axis] + inputs[0][axis + 1 :]
        _need(same and len(shape) == len(inputs[0]), f"shapes {inputs}")
    return (*inputs[0][:axis], sum(shape[axis] for shape in inputs), *inputs[0][axis + 1 :])


def _flatten(node: Node, inputs: list[Shape], given: Given) -> Shape:
    shape, start = inputs[0], node["start"] - 1
    end = len(shape) if node["end"] == -1 else node["end"]
    _need(0 <= start < end <= len(shape), "its dimensions")
    return (*shape[:start], math.prod(shape[start:end]), *shape[end:])


def _reshape(node: Node, inputs: list[Shape], given: Given) -> Shape:
    _need(all(size >= 0 for size in node.sizes), "its sizes")
    _need(math.prod(node.sizes) == math.prod(inputs[0]), f"sizes {node.sizes}")
    return node.sizes


def _permute(node: Node, inputs: list[Shape], given: Given) -> Shape:
    _need(sorted(node.sizes) == list(range(1, len(inputs[0]) + 1)), f"dimensions {node.sizes}")
    return tuple(inputs[0][dim - 1] for dim in node.sizes)


_ELEMENTWISE = ("relu", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "clamp")
_RULES: dict[str, Callable[[Node, list[Shape], Given], Shape]] = {
    **dict.fromkeys([*_ELEMENTWISE, "softmax", "add", "mul"], _same),
    **dict.fromkeys(["max_pool", "avg_pool"], _pool),
    **dict.fromkeys(["adaptive_avg_pool", "adaptive_max_pool"], _adaptive),
    "conv": _conv,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "cat": _cat,
    "flatten": _flatten,
    "reshape": _reshape,
    "permute": _permute,
}
