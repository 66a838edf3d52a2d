"""A graph that is being made: its nodes so far, and what is known of the values of torch's."""

from __future__ import annotations

from typing import Any

from torch import fx
from torch.export import ExportedProgram

from asterism.graph.capture.exported import shape_of_result
from asterism.graph.capture.fixed_values import FixedValues
from asterism.graph.capture.simplify import is_nothing, simplified
from asterism.graph.network import Node
from asterism.graph.operations.operation import UnsupportedError


class Draft:
    """The nodes so far, and the numbers of torch's values."""

    def __init__(self, program: ExportedProgram, names: list[str]) -> None:
        signature = program.graph_signature
        places = {name: place for place, name in enumerate(names)}
        held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self.weights = {inner: places[name] for inner, name in held.items() if name in places}
        self.values: dict[fx.Node, int] = {}
        self.nodes: list[Node] = []
        self.batch: Any = None  # its size, a symbol
        self.batches: set[Any] = set()  # the same as expressions, one for each input
        self.free: list[int] = []  # of each input: the dimension that varies
        self.inputs = [name for name in signature.user_inputs if isinstance(name, str)]
        self.program = program
        self.memory: dict[fx.Node, fx.Node] = {}  # of a view: the node whose memory it shares
        self.stale: set[fx.Node] = set()
        self.fixed = FixedValues(program, self.weights)
        self.shapes: dict[int, tuple[int, ...]] = {}  # of values, −1 for a size that varies
        self.constants: set[fx.Node] = set()  # what is computed from weights alone
        self.tables: set[fx.Node] = set()  # what is the beginning of a weight
        # Values whose batch is torch's second dimension, as of a recurrent layer's states: ours
        # have it first, and all that is done to them is seen that way.
        self.turned: set[fx.Node] = set()
        self.items: dict[tuple[fx.Node, int], int] = {}  # results of torch's but the first

    def remember(self, node: fx.Node) -> None:
        """The shape of a value, where torch knows it."""
        shape = shape_of_result(node) or ()
        shape = (shape[1], shape[0], *shape[2:]) if node in self.turned else shape
        alone = node in self.tables or node in self.constants  # without a batch
        kept = shape if alone else shape[1:]
        sizes = tuple(size if isinstance(size, int) else -1 for size in kept)
        self.shapes.setdefault(self.values[node], sizes)

    def maker(self, value: int) -> Node | None:
        return self.nodes[value - len(self.inputs)] if value >= len(self.inputs) else None

    def add(self, node: Node, sizes: tuple[int, ...] | None = None) -> int:
        if node.known:
            node = simplified(node, self.maker, sizes)
            if is_nothing(node, self.shapes.get(node.inputs[0])):
                return node.inputs[0]
        self.nodes.append(node)
        value = len(self.inputs) + len(self.nodes) - 1
        if sizes is not None:
            self.shapes[value] = sizes
        return value

    def value(self, node: Any) -> int:
        if isinstance(node, fx.Node) and node.name in self.weights:
            return self.add(Node("weight", (0,), (self.weights[node.name],)))
        if node not in self.values:
            raise UnsupportedError
        return self.values[node]

    def is_constant(self, node: fx.Node) -> bool:
        """Whether it depends on weights alone, and not on the input."""
        return node.name in self.weights or node in self.constants
