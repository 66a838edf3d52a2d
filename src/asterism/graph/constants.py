"""Weights that are computed from other weights, as of weight norm and of masks, as plain ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asterism.errors import FormatError
from asterism.graph.network import Graph, Node, living
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.constants import Constant
from asterism.graph.shapes import infer
from asterism.graph.stages import Array
from asterism.graph.work import Work


def settle(graph: Graph, weights: Sequence[Array]) -> tuple[Graph, list[Array]]:
    """The same network with each weight that is a value computed, and appended to the weights.

    >>> norm = Node("weight_norm", (0,), (0, 1))
    >>> net = Graph((2,), (norm, Node("linear", (0,), (-1,))))
    >>> plain, weights = settle(net, [np.float32([[3, 4]]), np.float32([[10]])])
    >>> plain.nodes, weights[-1]
    ((Node('linear', (0,), (2,), ()),), array([[6., 8.]], dtype=float32))
    """
    found, nodes = list(weights), []
    places: dict[int, int] = {}
    for place, node in enumerate(graph.nodes):
        for value in node.made_weights:
            if not len(graph.inputs) <= value < len(graph.inputs) + place:
                raise FormatError(f"layer {place} ({node.op}) has a weight that does not exist")
            if value not in places:
                places[value] = len(found)
                found.append(_computed(graph, value, weights))
        own = [places[-w] if w is not None and w < 0 else w for w in node.weights]
        nodes.append(Node(node.op, node.inputs, own, node.settings))
    whole = Graph(graph.inputs, tuple(nodes), graph.outputs, graph.ranges)
    plain = living(whole) if places else graph
    return plain, found


def _computed(graph: Graph, value: int, weights: Sequence[Array]) -> Array:
    """A value that depends on weights alone."""
    part = living(Graph(graph.inputs, graph.nodes, (value,)))
    count = len(part.inputs)
    for node in part.nodes:
        constant = node.known and isinstance(OPERATIONS[node.op], Constant)
        if node.made_weights or not (constant or all(each >= count for each in node.inputs)):
            raise FormatError(f"a weight is computed by {node.op}, from more than weights")
    shapes = infer(part, weights)
    Work.allowed(weights).check(part, shapes)
    values = [np.zeros((1, 1), np.float32)] * count
    with np.errstate(all="ignore"):
        for node, shape in zip(part.nodes, shapes[count:], strict=True):
            inputs = [values[each] for each in node.inputs]
            out = OPERATIONS[node.op].numpy(node, inputs, node.given(weights), shape)
            values.append(np.ascontiguousarray(out, np.float32))
    computed: Array = values[-1][0]
    return computed
