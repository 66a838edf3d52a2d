"""A network as a short list of layers, and the few dozen bytes that such a list takes in a file.

Owns how layers and their settings are written down. Knows nothing of torch; what a layer is called,
which settings it has and what it computes is the operations'.

A value is a number: 0 is the network's input, i + 1 the result of node i, and the last node's
result is the output. A weight is a number too: its place in the state dict's order, or −v for a
weight that is the value v, which is then computed from other weights alone. The first dimension of
every value is the batch, of any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from asterism.errors import FormatError
from asterism.graph.encoding import MAX_NUMBER, Reader, Writer, unzigzag, zigzag
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.operation import Operation
from asterism.graph.stages import Number, Settings

VERSION = 1

T = TypeVar("T")


class Node:
    """One layer: what it does, to which values, with which weights and settings.

    Settings that have their default may be left out, and are; so are weights at the end that are
    None.

    >>> Node("max_pool", (1,), settings={"kernel_h": 2, "kernel_w": 2})["stride_h"]
    0
    """

    def __init__(
        self,
        op: str,
        inputs: tuple[int, ...],
        weights: Sequence[int | None] = (),
        settings: Settings = (),
    ) -> None:
        given = list(weights)
        while given and given[-1] is None:
            given.pop()
        if not isinstance(settings, tuple):
            defaults = OPERATIONS[op].defaults
            kept = {name: number for name, number in settings.items() if number != defaults[name]}
            settings = kept or ()
        self.op, self.inputs, self.weights, self.settings = op, inputs, tuple(given), settings

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.op, self.inputs, self.weights))

    def __repr__(self) -> str:
        return f"Node({self.op!r}, {self.inputs}, {self.weights}, {self.settings})"

    @property
    def known(self) -> bool:
        return self.op in OPERATIONS

    @property
    def sizes(self) -> tuple[int, ...]:
        """The settings of an operation whose settings are a plain list."""
        assert isinstance(self.settings, tuple)
        return self.settings

    def __getitem__(self, name: str) -> int:
        return int(self.number(name))

    def number(self, name: str) -> Number:
        default = OPERATIONS[self.op].defaults[name]
        return default if isinstance(self.settings, tuple) else self.settings.get(name, default)

    def given(self, weights: Sequence[T]) -> list[T | None]:
        """Its own of all weights, one for each that the operation may have.

        >>> Node("linear", (0,), (1,)).given(["a", "b"])
        ['b', None]
        """
        found = [None if place is None else weights[place] for place in self.weights]
        return found + [None] * (OPERATIONS[self.op].weights - len(found))

    @property
    def made_weights(self) -> tuple[int, ...]:
        """The values that are weights of this layer."""
        return tuple(-weight for weight in self.weights if weight is not None and weight < 0)

    def renumbered(self, numbers: Mapping[int, int]) -> Node:
        """The same layer where values have other numbers."""
        inputs = tuple(numbers[value] for value in self.inputs)
        weights = [w if w is None or w >= 0 else -numbers[-w] for w in self.weights]
        return Node(self.op, inputs, weights, self.settings)

    def pair(self, name: str) -> tuple[int, int]:
        return self[f"{name}_h"], self[f"{name}_w"]


class Graph(NamedTuple):
    """The shape of one example, without the batch, and the layers in the order they run.

    >>> net = Graph((784,), (Node("linear", (0,), (0, 1)), Node("relu", (1,))))
    >>> len(encode(net)), decode(encode(net)) == net
    (9, True)
    """

    input_shape: tuple[int, ...]
    nodes: tuple[Node, ...]

    @property
    def unknown(self) -> tuple[str, ...]:
        """The operations that only their names are known of, each once."""
        return tuple(dict.fromkeys(node.op for node in self.nodes if not node.known))


def living(nodes: Sequence[Node], output: int) -> tuple[Node, ...]:
    """The nodes that the value `output` needs, renumbered."""
    needed = {output}
    for place in range(output, 0, -1):
        if place in needed:
            needed |= {*nodes[place - 1].inputs, *nodes[place - 1].made_weights}
    numbers = {value: number for number, value in enumerate(sorted(needed | {0}))}
    return tuple(node.renumbered(numbers) for place, node in enumerate(nodes, 1) if place in needed)


def encode(graph: Graph) -> bytes:
    """The graph as bytes: its version, the input's shape, and each layer in turn.

    A layer is its operation's code, or 0 and a name, with one bit that says whether it simply
    follows the one before; then its weights, each as the distance from the weight after the last
    one named; then its settings, without those at the end that have their defaults.
    """
    out = Writer()
    out.number(VERSION)
    out.list(graph.input_shape)
    out.number(len(graph.nodes))
    expected = 0
    for place, node in enumerate(graph.nodes):
        operation = OPERATIONS.get(node.op)
        follows = node.inputs == (place,)
        out.number(2 * (operation.code if operation else 0) + follows)
        if operation is None:
            out.text(node.op)
        if not follows:
            _write_inputs(out, node, place, -1 if operation is None else operation.arity)
        if operation is not None:
            missing = [None] * (operation.weights - len(node.weights))
            expected = _write_weights(out, [*node.weights, *missing], expected)
            _write_settings(out, node, operation)
    return bytes(out.bytes)


def _write_inputs(out: Writer, node: Node, place: int, arity: int) -> None:
    if arity < 0:
        out.number(len(node.inputs))
    for value in node.inputs:
        out.number(place - value)


def _write_weights(out: Writer, weights: Sequence[int | None], expected: int) -> int:
    """The place that would be expected of the next weight."""
    for weight in weights:
        out.number(0 if weight is None else 1 + zigzag(weight - expected))
        expected = expected if weight is None or weight < 0 else weight + 1
    return expected


def _write_settings(out: Writer, node: Node, operation: Operation) -> None:
    if operation.free:
        out.list(tuple(zigzag(size) for size in node.sizes))
    elif operation.defaults:
        out.settings(map(node.number, operation.defaults), operation.defaults)


def decode(data: bytes) -> Graph:
    """The graph that `encode` wrote; FormatError where the bytes are not one."""
    read = Reader(data)
    version = read.number()
    if version != VERSION:
        raise FormatError(f"the graph is of version {version}, and this asterism reads {VERSION}")
    shape = read.list()
    nodes: list[Node] = []
    expected = 0
    for place in range(read.count()):
        code, follows = divmod(read.number(), 2)
        if code and code not in _BY_CODE:
            raise FormatError(f"layer {place} of the graph has the unknown code {code}")
        operation = _BY_CODE.get(code)
        name = operation.name if operation else read.text()
        inputs = _read_inputs(read, place, bool(follows), operation.arity if operation else -1)
        weights: list[int | None] = []
        settings: Settings = ()
        if operation is not None:
            weights, expected = _read_weights(read, operation.weights, place, expected)
            settings = _read_settings(read, operation)
        nodes.append(Node(name, inputs, tuple(weights), settings))
    read.end()
    return Graph(shape, tuple(nodes))


_BY_CODE = {operation.code: operation for operation in OPERATIONS.values()}


def _read_inputs(read: Reader, place: int, follows: bool, arity: int) -> tuple[int, ...]:
    if follows and arity > 1:
        raise FormatError(f"layer {place} of the graph has one input where it takes two")
    if follows:
        return (place,)
    count = arity if arity >= 0 else read.count()
    inputs = tuple(place - read.number() for _ in range(count))
    if any(value < 0 for value in inputs):
        raise FormatError(f"layer {place} of the graph reads a value that does not exist")
    return inputs


def _read_weights(
    read: Reader, count: int, place: int, expected: int
) -> tuple[list[int | None], int]:
    """The weights of a layer, and the place that would be expected of the next one."""
    weights: list[int | None] = []
    for _ in range(count):
        distance = read.number()
        weight = expected + unzigzag(distance - 1) if distance else None
        if weight is not None and not -place <= weight <= MAX_NUMBER:
            raise FormatError(f"layer {place} of the graph names the weight {weight}")
        weights.append(weight)
        expected = expected if weight is None or weight < 0 else weight + 1
    return weights, expected


def _read_settings(read: Reader, operation: Operation) -> Settings:
    if operation.free:
        return tuple(unzigzag(size) for size in read.list())
    return read.settings(operation.defaults) if operation.defaults else ()
