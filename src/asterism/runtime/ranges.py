"""How large the numbers of a network's values become, on examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from asterism.errors import InputError
from asterism.graph.network import Graph
from asterism.runtime.layers.packing import BLOCK
from asterism.runtime.net import Net


def with_ranges(
    graph: Graph, tensors: Mapping[str, npt.NDArray[Any]], examples: Sequence[npt.NDArray[Any]]
) -> Graph:
    """The network with the largest magnitude of each value that it computes for the examples.

    One whose weights are computed from others, as by weight norm, is left as it is.

    graph     the network
    tensors   its weights, as for `Net`
    examples  a batch for each input
    """
    plain = Graph(graph.inputs, graph.nodes, graph.outputs)
    outs = sorted({layer.out for layer in Net(plain, tensors).layers})
    if not outs or any(node.made_weights for node in graph.nodes):
        return graph
    # Each twice: then there are several, and the answer is a tuple.
    every = Net(Graph(graph.inputs, graph.nodes, (*outs, *outs)), tensors)
    largest = dict.fromkeys(range(len(graph.inputs) + len(graph.nodes)), 0.0)
    for first in range(0, max(map(len, examples)), BLOCK):
        parts = [each[first : first + BLOCK] for each in examples]
        made = [*enumerate(parts), *zip(outs, every(*parts), strict=False)]
        for value, numbers in made:
            size = float(np.abs(numbers).max(initial=0))
            if not math.isfinite(size):
                raise InputError("the examples make numbers that are not finite: give others")
            largest[value] = max(largest[value], size)
    return Graph(graph.inputs, graph.nodes, graph.outputs, tuple(largest.values()))
