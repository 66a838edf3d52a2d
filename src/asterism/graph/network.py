"""A network as a short list of layers, and the few dozen bytes that such a list takes in a file.

Owns how layers and their settings are written down. Knows nothing of torch; what a layer is called,
which settings it has and what it computes is the operations'.

A value is a number: first come the network's inputs, then the result of each node in turn. A weight
is a number too: its place in the state dict's order, or −v for a weight that is the value v, which
is then computed from other weights alone. The first dimension of every value is the batch, of any
size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from asterism.errors import FormatError
from asterism.graph.encoding import (
    MAX_NUMBER,
    Reader,
    Writer,
    read_ranges,
    unzigzag,
    write_ranges,
    zigzag,
)
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.operation import Operation
from asterism.graph.stages import Number, Settings

ONE_INPUT, SEVERAL = 1, 2  # versions: one input, of floats, and one output; or several
WITH_RANGES = 2  # is added to the version of a graph that has them

T = TypeVar("T")


class Node:
    """One layer: what it does, to which values, with which weights and settings.

    op        the name of the operation
    inputs    the numbers of the values that it reads
    weights   the numbers of its weights, None for a missing one; such are left out at the end
    settings  by name, or a plain list; those that have their default are left out

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


class Input(NamedTuple):
    """What a network is given: the shape of one example, without the batch, and of which numbers.

    integer  whether they are whole numbers, as the ids of words are
    free     the dimension that may have another size in each call, as the length of a text; the
             batch would be 0, and 0 is none
    """

    shape: tuple[int, ...]
    integer: bool = False
    free: int = 0

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Whether examples may have this shape."""
        if len(shape) != len(self.shape):
            return False
        pairs = enumerate(zip(shape, self.shape, strict=True), 1)
        return all(size == own or axis == self.free for axis, (size, own) in pairs)


class Graph:
    """The inputs, the layers in the order they run, and the values that are the outputs.

    inputs   each with its shape; for one input of floats the shape is enough
    nodes    the layers; their results are numbered after the inputs
    outputs  the numbers of the results; the last value if not given
    ranges   of each value, the largest magnitude that its numbers should have; empty if not known

    >>> net = Graph((784,), (Node("linear", (0,), (0, 1)), Node("relu", (1,))))
    >>> len(encode(net)), decode(encode(net)) == net
    (9, True)
    """

    def __init__(
        self,
        inputs: tuple[int, ...] | tuple[Input, ...],
        nodes: tuple[Node, ...],
        outputs: tuple[int, ...] | None = None,
        ranges: tuple[float, ...] = (),
    ) -> None:
        several = tuple(each for each in inputs if isinstance(each, Input))
        shape = tuple(each for each in inputs if not isinstance(each, Input))
        self.inputs: tuple[Input, ...] = several or (Input(shape),)
        self.nodes = nodes
        self.outputs = (len(self.inputs) + len(nodes) - 1,) if outputs is None else outputs
        self.ranges = ranges

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.inputs, self.nodes, self.outputs))

    def __repr__(self) -> str:
        return f"Graph({self.inputs}, {self.nodes}, {self.outputs})"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of the first input."""
        return self.inputs[0].shape

    @property
    def unknown(self) -> tuple[str, ...]:
        """The operations that only their names are known of, each once."""
        return tuple(dict.fromkeys(node.op for node in self.nodes if not node.known))

    @property
    def is_plain(self) -> bool:
        """Whether one input, of floats and of a fixed size, gives one output, the last value."""
        return self.inputs == (Input(self.input_shape),) and self.outputs == (len(self.nodes),)


def living(graph: Graph) -> Graph:
    """The graph without the nodes that no output needs; values are numbered anew."""
    count, needed = len(graph.inputs), set(graph.outputs)
    for place in range(len(graph.nodes) - 1, -1, -1):
        if place + count in needed:
            needed |= {*graph.nodes[place].inputs, *graph.nodes[place].made_weights}
    kept = sorted(needed | set(range(count)))
    numbers = {value: number for number, value in enumerate(kept)}
    nodes = tuple(graph.nodes[value - count].renumbered(numbers) for value in kept[count:])
    ranges = tuple(graph.ranges[value] for value in kept) if graph.ranges else ()
    return Graph(graph.inputs, nodes, tuple(numbers[value] for value in graph.outputs), ranges)


def encode(graph: Graph) -> bytes:
    """The graph as bytes: its version, the inputs, each layer in turn, outputs, and ranges.

    A layer is its operation's code, or 0 and a name, with one bit that says whether it simply
    follows the one before; then its weights, each as the distance from the weight after the last
    one named; then its settings, without those at the end that have their defaults.
    """
    out = Writer()
    version = ONE_INPUT if graph.is_plain else SEVERAL
    out.number(version + WITH_RANGES * bool(graph.ranges))
    if graph.is_plain:
        out.list(graph.input_shape)
    else:
        _write_ends(out, graph)
    out.number(len(graph.nodes))
    expected = 0
    for place, node in enumerate(graph.nodes, len(graph.inputs) - 1):
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
    return bytes(out.bytes) + write_ranges(graph.ranges)


def _write_ends(out: Writer, graph: Graph) -> None:
    """Inputs and outputs."""
    out.number(len(graph.inputs))
    for each in graph.inputs:
        out.list(each.shape)
        out.number(2 * each.free + each.integer)
    out.number(len(graph.outputs))
    for value in graph.outputs:
        out.number(value)


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
    last_version = SEVERAL + WITH_RANGES
    if not ONE_INPUT <= version <= last_version:
        raise FormatError(
            f"the graph is of version {version}, and this asterism reads up to {last_version}"
        )
    has_ranges = version > SEVERAL
    several = version - WITH_RANGES * has_ranges == SEVERAL
    inputs, outputs = _read_ends(read) if several else ((Input(read.list()),), None)
    nodes: list[Node] = []
    expected = 0
    for place in range(read.count()):
        code, follows = divmod(read.number(), 2)
        if code and code not in _BY_CODE:
            raise FormatError(f"layer {place} of the graph has the unknown code {code}")
        operation = _BY_CODE.get(code)
        name = operation.name if operation else read.text()
        arity, last = operation.arity if operation else -1, place + len(inputs) - 1
        values = _read_inputs(read, place, last, arity, bool(follows))
        weights: list[int | None] = []
        settings: Settings = ()
        if operation is not None:
            weights, expected = _read_weights(read, operation.weights, place, last, expected)
            settings = _read_settings(read, operation)
        nodes.append(Node(name, values, tuple(weights), settings))
    ranges = read_ranges(read.take(len(inputs) + len(nodes))) if has_ranges else ()
    read.end()
    if outputs is not None and max(outputs) >= len(inputs) + len(nodes):
        raise FormatError("an output of the graph is a value that does not exist")
    return Graph(inputs, tuple(nodes), outputs, ranges)


def _read_ends(read: Reader) -> tuple[tuple[Input, ...], tuple[int, ...]]:
    inputs = []
    for _ in range(read.count()):
        shape = read.list()
        free, integer = divmod(read.number(), 2)
        if free > len(shape):
            raise FormatError(f"an input of the graph has no dimension {free} that could be free")
        inputs.append(Input(shape, bool(integer), free))
    outputs = tuple(read.number() for _ in range(read.count()))
    if not inputs or not outputs:
        raise FormatError("the graph has no inputs or no outputs")
    return tuple(inputs), outputs


_BY_CODE = {operation.code: operation for operation in OPERATIONS.values()}


def _read_inputs(read: Reader, place: int, last: int, arity: int, follows: bool) -> tuple[int, ...]:
    """The values that a layer reads; `last` is the one just before its own."""
    if follows and arity > 1:
        raise FormatError(f"layer {place} of the graph has one input where it takes {arity}")
    if follows:
        return (last,)
    count = arity if arity >= 0 else read.count()
    inputs = tuple(last - read.number() for _ in range(count))
    if any(value < 0 for value in inputs):
        raise FormatError(f"layer {place} of the graph reads a value that does not exist")
    return inputs


def _read_weights(
    read: Reader, count: int, place: int, last: int, expected: int
) -> tuple[list[int | None], int]:
    """The weights of a layer, and the place that would be expected of the next one."""
    weights: list[int | None] = []
    for _ in range(count):
        distance = read.number()
        weight = expected + unzigzag(distance - 1) if distance else None
        if weight is not None and not -last <= weight <= MAX_NUMBER:
            raise FormatError(f"layer {place} of the graph names the weight {weight}")
        weights.append(weight)
        expected = expected if weight is None or weight < 0 else weight + 1
    return weights, expected


def _read_settings(read: Reader, operation: Operation) -> Settings:
    if operation.free:
        return tuple(unzigzag(size) for size in read.list())
    return read.settings(operation.defaults) if operation.defaults else ()
