"""A recurrent network for sequences that come in parts: its states become inputs and outputs.

Knows which layers treat each step by itself; what reads several steps at once, as a mean over time
or a layer that runs backwards does, has no answer for a part.
"""

from __future__ import annotations

from collections.abc import Sequence

from asterism.errors import InputError
from asterism.graph.network import Graph, Input, Node
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.joining import OfTwo
from asterism.graph.operations.operation import Elementwise
from asterism.graph.operations.recurrent import Recurrent, directions_of
from asterism.graph.stages import Array, Shape


def streaming(graph: Graph, shapes: Sequence[Shape], weights: Sequence[Array], steps: int) -> Graph:
    """The network for parts of `steps` steps; InputError where it cannot run in parts.

    After the sequence its inputs are the states of all recurrent layers, of shape (1, units) each,
    and after its own outputs come the states that they have then.

    shapes   of all values, by their numbers
    weights  as the graph counts them
    """
    return _Streaming(graph, shapes, weights, steps).graph()


class _Streaming:
    """The nodes so far, and the numbers that values have among them."""

    def __init__(
        self, graph: Graph, shapes: Sequence[Shape], weights: Sequence[Array], steps: int
    ) -> None:
        self.old, self.shapes, self.weights, self.steps = graph, shapes, weights, steps
        if len(graph.inputs) != 1 or len(graph.input_shape) != 2:
            raise InputError("only a network with one input, of steps and features, runs in parts")
        layers = [node for node in graph.nodes if isinstance(OPERATIONS[node.op], Recurrent)]
        if not layers:
            raise InputError("the network has no recurrent layer: call it as it is")
        states = [self._state(node) for node in layers for _ in range(_operation(node).states)]
        self.inputs = (Input((steps, graph.input_shape[1])), *states)
        self.given = iter(range(1, len(self.inputs)))
        self.nodes: list[Node] = []
        self.numbers, self.made = {0: 0}, list[int]()
        self.sequences = {0}  # of the old values, those that have the steps as their rows

    def _state(self, node: Node) -> Input:
        weights = node.given(self.weights)
        if len(node.inputs) > 1:
            raise InputError("the network takes its state as an input: call it as it is")
        if len(directions_of(weights)) > 1:
            raise InputError(f"its {node.op} also runs backwards, from the last step on")
        assert weights[1] is not None
        return Input((1, weights[1].shape[1]))

    def graph(self) -> Graph:
        for place, node in enumerate(self.old.nodes):
            self.numbers[place + 1] = self._next(place + 1, node)
        outputs = tuple(self.numbers[value] for value in self.old.outputs)
        return Graph(self.inputs, tuple(self.nodes), (*outputs, *self.made))

    def _next(self, value: int, node: Node) -> int:
        """The number of a value, whose node is added as it is for this number of steps."""
        same = node.renumbered(self.numbers)
        if not self.sequences & set(node.inputs):
            return self._add(same)
        if isinstance(OPERATIONS[node.op], Recurrent):
            self.sequences.add(value)
            return self._recurrent(same)
        whole = self.shapes[node.inputs[0]][0]
        if node.op == "slice" and (node["dim"], node["start"], node["size"]) == (1, whole - 1, 1):
            return self._part(same.inputs[0], self.steps - 1, 1)  # the last step
        if not self._by_step(node):
            raise InputError(f"its layer {value - 1} ({node.op}) reads more than one step")
        self.sequences.add(value)
        return self._add(same)

    def _by_step(self, node: Node) -> bool:
        operation = OPERATIONS[node.op]
        if node.op == "layer_norm":
            return node["rank"] == 1
        if node.op in ("softmax", "log_softmax"):
            return node["dim"] == -1
        return isinstance(operation, Elementwise | OfTwo) or node.op == "linear"

    def _recurrent(self, node: Node) -> int:
        """With its state given; its last state is an output."""
        count, cells = _operation(node).states, node.op == "lstm"
        state = [next(self.given) for _ in range(count)]
        settings = {"cells": 1} if cells else ()
        value = self._add(Node(node.op, (*node.inputs, *state), node.weights, settings))
        self.made += [self._part(value, self.steps - 1 + place, 1) for place in range(count)]
        return self._part(value, 0, self.steps) if cells else value

    def _part(self, value: int, start: int, size: int) -> int:
        return self._add(Node("slice", (value,), settings={"start": start, "size": size}))

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.inputs) + len(self.nodes) - 1


def _operation(node: Node) -> Recurrent:
    operation = OPERATIONS[node.op]
    assert isinstance(operation, Recurrent)
    return operation
