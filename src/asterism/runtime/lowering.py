"""From a graph to the layers that really run: norms folded, activations and pooling drawn in.

Owns what is merged and what is dead. How a layer computes is the program's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asterism.graph.network import Graph, Node
from asterism.graph.shapes import Array, Shape, kernel
from asterism.runtime.reference import scale_and_shift

Mask = npt.NDArray[np.bool_]


class Layer(NamedTuple):
    """A node with all that was merged into it; `needed` marks the results that anything reads.

    `inputs` are the values whose memory it reads, `node.inputs` say in which shape.
    """

    place: int  # of the first node
    node: Node
    inputs: tuple[int, ...]
    out: int
    weights: list[Array | None]
    relu: bool = False
    pool: bool = False
    needed: Mask | None = None

    @property
    def weight(self) -> Array:
        """Of a convolution or a fully connected layer."""
        assert self.weights[0] is not None
        return self.weights[0]

    @property
    def bias(self) -> Array:
        """The same, zeros where it has none."""
        given = self.weights[1]
        return np.zeros(len(self.weight), np.float32) if given is None else given

    @property
    def fused(self) -> str:
        """The activation that its own step applies."""
        return "relu" if self.relu else "none"

    @property
    def name(self) -> str:
        return f"{self.node.op}{' + relu' * self.relu}{' + max_pool' * self.pool}"


def lower(graph: Graph, shapes: Sequence[Shape], weights: Sequence[Array]) -> list[Layer]:
    """The layers in order. The last one's `out`, or the input's 0, is the network's result."""
    layers: list[Layer] = []
    roots = {0: 0}  # a value that is another one's memory
    uses = _uses(graph)
    makers: dict[int, int] = {}
    for place, node in enumerate(graph.nodes):
        out = place + 1
        inputs = tuple(roots[value] for value in node.inputs)
        if node.op in ("flatten", "reshape"):
            roots[out] = inputs[0]
            continue
        given = node.given(weights)
        layer = Layer(place, node, inputs, out, given)
        maker = makers.get(node.inputs[0])
        if maker is not None and uses[node.inputs[0]] == 1:
            merged = _merge(layers[maker], node, given, shapes)
            if merged is not None:
                layers[maker] = merged._replace(out=out)
                roots[out], makers[out] = out, maker
                continue
        roots[out], makers[out] = out, len(layers)
        layers.append(layer)
    result = roots[len(graph.nodes)]
    return _mark_needed(layers, shapes, result)


def _uses(graph: Graph) -> Counter[int]:
    return Counter(value for node in graph.nodes for value in node.inputs)


def _merge(
    layer: Layer, node: Node, given: list[Array | None], shapes: Sequence[Shape]
) -> Layer | None:
    """`layer` with `node` after it, where the two can run as one."""
    weighted = layer.node.op in ("conv", "linear") and not layer.relu and not layer.pool
    if node.op == "batch_norm" and weighted:
        if layer.node.op == "linear" and len(shapes[layer.out]) != 1:
            return None
        return _fold(layer, *scale_and_shift(node, given))
    if node.op == "relu" and layer.node.op in ("conv", "linear", "add"):
        return layer._replace(relu=True)
    if node.op == "max_pool" and layer.node.op == "conv" and not layer.pool and _halves(node):
        window = kernel(layer.weight).shape[2:]
        _, *size = shapes[layer.out]
        if len(size) == 2 and min(size) > 1 and window != (1, 1):
            return layer._replace(pool=True)
    return None


def _halves(node: Node) -> bool:
    """Two by two, next to each other."""
    return (
        node.pair("kernel") == (2, 2)
        and node.pair("stride") in ((0, 0), (2, 2))
        and node.pair("padding") == (0, 0)
        and node.pair("dilation") == (1, 1)
        and not node["ceil"]
    )


def _fold(layer: Layer, scale: Array, shift: Array) -> Layer:
    folded = layer.weight * scale.reshape(-1, *[1] * (layer.weight.ndim - 1))
    return layer._replace(weights=[folded, layer.bias * scale + shift])


_THROUGH = ("relu", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "clamp", "add", "mul")


def _mark_needed(layers: list[Layer], shapes: Sequence[Shape], result: int) -> list[Layer]:
    """From the end to the beginning: a result whose every reader has pruned it need not be."""
    needed = {layer.out: np.zeros(shapes[layer.out], bool) for layer in layers}
    needed[0] = np.zeros(shapes[0], bool)
    needed[result] |= True
    for place in range(len(layers) - 1, -1, -1):
        mine = needed[layers[place].out]
        layer = layers[place] = layers[place]._replace(needed=mine)
        for value, seen in zip(layer.inputs, layer.node.inputs, strict=True):
            needed[value] |= _read(layer, mine, shapes[seen]).reshape(shapes[value])
    return [layer for layer in layers if layer.needed is not None and layer.needed.any()]


def _read(layer: Layer, mine: Mask, shape: Shape) -> Mask:
    """What a layer reads of an input of `shape`, for the results that are needed."""
    if layer.node.op in _THROUGH:
        return mine
    if layer.node.op == "linear" and mine.ndim == 1:
        read: Mask = (layer.weight[mine] != 0).any(0)
        return read
    if layer.node.op == "conv":
        channels = np.zeros(shape[0], bool)
        channels[live_inputs(layer)] = True
        return np.broadcast_to(channels.reshape(-1, *[1] * (len(shape) - 1)), shape)
    return np.full(shape, math.prod(mine.shape) > 0)


def live_outputs(layer: Layer) -> npt.NDArray[np.intp]:
    """The output channels that anything reads."""
    assert layer.needed is not None
    return np.flatnonzero(layer.needed.reshape(len(layer.needed), -1).any(1))


def live_inputs(layer: Layer) -> npt.NDArray[np.intp]:
    """The input channels of a convolution that its needed outputs have a weight for."""
    outputs = live_outputs(layer)
    weight = layer.weight
    group = outputs // max(1, len(weight) // layer.node["groups"])
    used = (weight[outputs] != 0).any(tuple(range(2, weight.ndim)))
    output, channel = np.nonzero(used)
    live = np.zeros(weight.shape[1] * layer.node["groups"], bool)
    live[channel + group[output] * weight.shape[1]] = True
    return np.flatnonzero(live)  # np.unique would import numpy.ma
