"""How large the numbers of a network's values become, on examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import asterism.kernels.library as library
from asterism.errors import InputError
from asterism.graph.network import Graph, Node
from asterism.graph.stages import Array, FusedLayer, Shape
from asterism.runtime.layers.packing import BLOCK
from asterism.runtime.net import Net
from asterism.runtime.sixteen_bits import ROOM


class Sums:
    """The sums of a convolution while not all of its products are in them.

    layer   the convolution
    shapes  of all values
    """

    def __init__(self, layer: FusedLayer, shapes: Sequence[Shape]) -> None:
        self.layer, self.shape = layer, shapes[layer.node.inputs[0]]
        assert isinstance(layer.node, Node)
        graph = Graph(self.shape, (Node("conv", (0,), (0,), layer.node.settings),))
        halves = np.maximum(layer.weight, 0), np.maximum(-layer.weight, 0)
        self._positive, self._negative = (Net(graph, {"weight": half}) for half in halves)

    def largest(self, values: Mapping[int, Array]) -> float:
        """The largest magnitude that one can have, in whatever order products are added.

        values  of the network, by their numbers
        """
        x = values[self.layer.inputs[0]].reshape(-1, *self.shape)
        above, below = np.maximum(x, 0), np.maximum(-x, 0)
        rises, falls = self._positive(above), self._negative(above)
        if below.any():
            rises, falls = rises + self._negative(below), falls + self._positive(below)
        bias = self.layer.bias.reshape(-1, *[1] * (x.ndim - 2))
        return float(max((bias + rises).max(), (falls - bias).max()))


def with_ranges(
    graph: Graph, tensors: Mapping[str, npt.NDArray[Any]], examples: Sequence[npt.NDArray[Any]]
) -> Graph:
    """The network with the largest magnitude of each value that it computes for the examples.

    Of a convolution's result it is large enough for the sums on the way, too. A network whose
    weights are computed from others, as by weight norm, is left as it is.

    graph     the network
    tensors   its weights, as for `Net`
    examples  a batch for each input
    """
    plain = Graph(graph.inputs, graph.nodes, graph.outputs)
    if library.load() is None:
        raise InputError("ranges for 16 bits are found by the compiled kernels, and there are none")
    if len(examples) != len(graph.inputs):
        raise InputError(f"the network takes {len(graph.inputs)} inputs, not {len(examples)}")
    net = Net(plain, tensors)
    outs = sorted({layer.out for layer in net.layers})
    if not outs or any(node.made_weights for node in graph.nodes):
        return graph
    known = {*range(len(graph.inputs)), *outs}
    sums = [
        Sums(layer, net.shapes)
        for layer in net.layers
        if layer.node.op == "conv" and layer.inputs[0] in known
    ]
    # Each twice: then there are several, and the answer is a tuple.
    every = Net(Graph(graph.inputs, graph.nodes, (*outs, *outs)), tensors)
    largest = dict.fromkeys(range(len(graph.inputs) + len(graph.nodes)), 0.0)
    for first in range(0, max(map(len, examples)), BLOCK):
        parts = [each[first : first + BLOCK] for each in examples]
        made = {**dict(enumerate(parts)), **dict(zip(outs, every(*parts), strict=False))}
        sizes = [(value, float(np.abs(numbers).max(initial=0))) for value, numbers in made.items()]
        # What is finite becomes no NaN on the way, and infinite sums are found as infinite.
        sizes += [(each.layer.out, each.largest(made) / ROOM) for each in sums]
        for value, size in sizes:
            if not math.isfinite(size):
                raise InputError("the examples make numbers that are not finite: give others")
            largest[value] = max(largest[value], size)
    return Graph(graph.inputs, graph.nodes, graph.outputs, tuple(largest.values()))
