"""The layers of a network that is being read, with their shapes and weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from asterism.graph.network import Graph, Input, Node, living
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.operation import MAX_SIZE, UnsupportedError
from asterism.graph.simplify import is_nothing, simplified
from asterism.graph.stages import Array, Settings, Shape

LONGEST = 80  # letters of a weight's name: converters write long ones


class ReadLayers:
    """The nodes so far, the shape of every value, and the weights by name."""

    def __init__(self, inputs: tuple[Input, ...]) -> None:
        self.inputs = inputs
        self.nodes: list[Node] = []
        self.shapes: list[Shape] = [each.shape for each in inputs]
        self.places: dict[str, int] = {}
        self.weights: list[Array] = []

    def add(
        self, op: str, inputs: tuple[int, ...], settings: Settings = (), *weights: int | None
    ) -> int:
        """The number of the value that a new layer makes; MisfitError where it does not fit."""
        node = self._fitting(Node(op, inputs, weights, settings))
        node = simplified(node, self.maker, self._shape(node))
        if is_nothing(node, self.shapes[node.inputs[0]]):
            return node.inputs[0]
        self.nodes.append(node)
        self.shapes.append(self._shape(node))
        return len(self.shapes) - 1

    def missing(self, name: str, inputs: tuple[int, ...], weights: Sequence[int] = ()) -> int:
        """The number of the value that an operation makes of which only the name is known."""
        self.nodes.append(Node(name, inputs, weights))
        self.shapes.append(())
        return len(self.shapes) - 1

    def cut(self, count: int) -> None:
        """Forgets all layers but the first ones."""
        del self.nodes[count:]
        del self.shapes[len(self.inputs) + count :]

    def weight(self, name: str, array: Array) -> int:
        """The place of a weight; a name that another array has gets a number."""
        array = np.ascontiguousarray(array, np.float32).reshape(array.shape)
        name = name.rpartition(";")[2][-LONGEST:]
        found, count = name, 1
        while found in self.places and not _same(self.weights[self.places[found]], array):
            count += 1
            found = f"{name}_{count}"
        if found not in self.places:
            self.places[found] = len(self.weights)
            self.weights.append(array)
        return self.places[found]

    def maker(self, value: int) -> Node | None:
        return self.nodes[value - len(self.inputs)] if value >= len(self.inputs) else None

    def constant(self, value: int) -> Array | None:
        """The numbers of a value that is a weight."""
        node = self.maker(value)
        if node is None or node.op != "weight":
            return None
        assert node.weights[0] is not None
        return self.weights[node.weights[0]]

    def scaled(self, value: int, factor: float, shift: float) -> int:
        """Value · factor + shift."""
        return self.add("scale_shift", (value,), {"factor": factor, "shift": shift})

    def graph(self, outputs: tuple[int, ...]) -> tuple[Graph, dict[str, Array]]:
        """What the outputs need of all layers and weights."""
        graph = living(Graph(self.inputs, tuple(self.nodes), outputs))
        used = list(dict.fromkeys(w for n in graph.nodes for w in n.weights if w is not None))
        numbers = {place: number for number, place in enumerate(used)}
        names = list(self.places)
        nodes = tuple(_with_weights(node, numbers) for node in graph.nodes)
        tensors = {names[place]: self.weights[place] for place in used}
        return Graph(graph.inputs, nodes, graph.outputs), tensors

    def _fitting(self, node: Node) -> Node:
        """A node whose settings are numbers as a graph has them."""
        if isinstance(node.settings, tuple):
            return Node(node.op, node.inputs, node.weights, tuple(int(n) for n in node.settings))
        defaults = OPERATIONS[node.op].defaults
        settings = {name: type(defaults[name])(n) for name, n in node.settings.items()}
        return Node(node.op, node.inputs, node.weights, settings)

    def _shape(self, node: Node) -> Shape:
        given: Sequence[Array | None] = node.given(self.weights)
        inputs = [self.shapes[value] for value in node.inputs]
        shape = OPERATIONS[node.op].shape(node, inputs, given)
        if math.prod(shape) > MAX_SIZE or min(shape, default=0) < 0:
            raise UnsupportedError(f"of shape {tuple(shape)}")
        return shape


def _same(one: Array, other: Array) -> bool:
    return one is other or (one.shape == other.shape and one.tobytes() == other.tobytes())


def _with_weights(node: Node, numbers: dict[int, int]) -> Node:
    weights = [None if weight is None else numbers[weight] for weight in node.weights]
    return Node(node.op, node.inputs, weights, node.settings)
