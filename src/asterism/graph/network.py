"""A network as a short list of layers, and the few dozen bytes that such a list takes in a file.

Owns what a layer is called, which settings it has and how both are written down. Knows nothing of
torch, and neither what a layer computes nor whether its sizes fit: that is the runtime's.

A value is a number: 0 is the network's input, i + 1 the result of node i, and the last node's
result is the output. A weight is a number too: its place in the state dict's order. The first
dimension of every value is the batch, of any size.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from asterism.errors import FormatError

VERSION = 1
MAX_RANK = 8
MAX_NUMBER = 2**31 - 1

T = TypeVar("T")
Number = int | float
_Defaults = dict[str, Number]


class Operation(NamedTuple):
    """Settings and their defaults; weights are given in order, and missing ones are None.

    Arity −1 is any number of inputs. With `free` settings are a plain list, as of sizes.
    """

    code: int
    defaults: Mapping[str, Number]
    weights: int = 0
    arity: int = 1
    free: bool = False


def _pairs(default: int, *names: str) -> _Defaults:
    return {f"{name}_{axis}": default for name in names for axis in "hw"}


_WINDOW = {**_pairs(1, "kernel"), **_pairs(0, "stride", "padding"), "ceil": 0}

# Codes are part of the file format: new ones go at the end. 0 is an operation known by name only.
OPERATIONS: dict[str, Operation] = {
    "conv": Operation(
        1, {**_pairs(0, "padding"), **_pairs(1, "stride"), "groups": 1, **_pairs(1, "dilation")}, 2
    ),
    "linear": Operation(2, {}, 2),
    "max_pool": Operation(3, {**_WINDOW, **_pairs(1, "dilation")}),
    "avg_pool": Operation(4, {**_WINDOW, "count_padding": 1, "divisor": 0}),
    "adaptive_avg_pool": Operation(5, _pairs(1, "size")),
    "adaptive_max_pool": Operation(6, _pairs(1, "size")),
    "batch_norm": Operation(7, {"eps": 1e-5}, 4),
    "layer_norm": Operation(8, {"rank": 1, "eps": 1e-5}, 2),
    "relu": Operation(9, {}),
    "gelu": Operation(10, {"tanh": 0}),
    "silu": Operation(11, {}),
    "sigmoid": Operation(12, {}),
    "tanh": Operation(13, {}),
    "softmax": Operation(14, {"dim": -1}),
    "leaky_relu": Operation(15, {"slope": 0.01}),
    "clamp": Operation(16, {"low": 0.0, "high": 6.0}),
    "add": Operation(17, {}, arity=2),
    "mul": Operation(18, {}, arity=2),
    "cat": Operation(19, {"dim": 1}, arity=-1),
    "flatten": Operation(20, {"start": 1, "end": -1}),
    "reshape": Operation(21, {}, free=True),
    "permute": Operation(22, {}, free=True),
}
_NAMES = {operation.code: name for name, operation in OPERATIONS.items()}


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
        settings: Mapping[str, Number] | tuple[int, ...] = (),
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


def encode(graph: Graph) -> bytes:
    """The graph as bytes: its version, the input's shape, and each layer in turn.

    A layer is its code, with one bit that says whether it simply follows the one before; then
    its weights, each as the distance from the weight after the last one named; then its settings,
    without those at the end that have their defaults.
    """
    out = _Writer()
    out.number(VERSION)
    out.list(graph.input_shape)
    out.number(len(graph.nodes))
    expected = 0
    for place, node in enumerate(graph.nodes):
        operation = OPERATIONS.get(node.op, Operation(0, {}, arity=-1))
        follows = node.inputs == (place,)
        out.number(2 * operation.code + follows)
        if operation.code == 0:
            out.text(node.op)
        if not follows:
            if operation.arity < 0:
                out.number(len(node.inputs))
            for value in node.inputs:
                out.number(place - value)
        weights = (*node.weights, *[None] * (operation.weights - len(node.weights)))
        for weight in weights:
            out.number(0 if weight is None else 1 + _zigzag(weight - expected))
            expected = expected if weight is None else weight + 1
        if operation.free:
            out.list(tuple(_zigzag(size) for size in node.sizes))
        elif operation.defaults:
            out.settings(node, operation.defaults)
    return bytes(out.bytes)


def decode(data: bytes) -> Graph:
    """The graph that `encode` wrote; FormatError where the bytes are not one."""
    read = _Reader(data)
    version = read.number()
    if version != VERSION:
        raise FormatError(f"the graph is of version {version}, and this asterism reads {VERSION}")
    shape = read.list()
    nodes: list[Node] = []
    expected = 0
    for place in range(read.count()):
        code, follows = divmod(read.number(), 2)
        if code and code not in _NAMES:
            raise FormatError(f"layer {place} of the graph has the unknown code {code}")
        name = _NAMES[code] if code else read.text()
        operation = OPERATIONS[name] if code else Operation(0, {}, arity=-1)
        inputs: tuple[int, ...] = (place,)
        if not follows:
            arity = operation.arity if operation.arity >= 0 else read.count()
            inputs = tuple(place - read.number() for _ in range(arity))
        elif operation.arity > 1:
            raise FormatError(f"layer {place} of the graph has one input where it takes two")
        if any(value < 0 for value in inputs):
            raise FormatError(f"layer {place} of the graph reads a value that does not exist")
        weights: list[int | None] = []
        for _ in range(operation.weights):
            distance = read.number()
            weight = expected + _unzigzag(distance - 1) if distance else None
            if weight is not None and not 0 <= weight <= MAX_NUMBER:
                raise FormatError(f"layer {place} of the graph names the weight {weight}")
            weights.append(weight)
            expected = expected if weight is None else weight + 1
        settings: Mapping[str, Number] | tuple[int, ...] = ()
        if operation.free:
            settings = tuple(_unzigzag(size) for size in read.list())
        elif operation.defaults:
            settings = read.settings(operation.defaults)
        nodes.append(Node(name, inputs, tuple(weights), settings))
    read.end()
    return Graph(shape, tuple(nodes))


def _zigzag(number: int) -> int:
    return 2 * number if number >= 0 else -2 * number - 1


def _unzigzag(number: int) -> int:
    return -(number + 1) // 2 if number % 2 else number // 2


class _Writer:
    def __init__(self) -> None:
        self.bytes = bytearray()

    def number(self, number: int) -> None:
        """Seven bits a byte, the lowest first."""
        if not 0 <= number <= 2 * MAX_NUMBER + 1:
            raise FormatError(f"the number {number} does not fit into a graph")
        while number >= 128:
            self.bytes.append(number % 128 + 128)
            number //= 128
        self.bytes.append(number)

    def list(self, numbers: tuple[int, ...]) -> None:
        if len(numbers) > MAX_RANK:
            raise FormatError(f"{len(numbers)} dimensions are more than the {MAX_RANK} of a graph")
        self.number(len(numbers))
        for number in numbers:
            self.number(number)

    def text(self, text: str) -> None:
        encoded = text.encode()
        self.number(len(encoded))
        self.bytes += encoded

    def settings(self, node: Node, defaults: Mapping[str, Number]) -> None:
        names = list(defaults)
        while names and node.number(names[-1]) == defaults[names[-1]]:
            names.pop()
        self.number(len(names))
        for name in names:
            if isinstance(defaults[name], float):
                self.bytes += struct.pack("<d", node.number(name))
            else:
                self.number(_zigzag(node[name]))


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.place:
            raise FormatError(f"the graph ends early, at byte {len(self.data)}")
        self.place += size
        return self.data[self.place - size : self.place]

    def number(self) -> int:
        number = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            number += (byte % 128) << shift
            if byte < 128:
                if number > 2 * MAX_NUMBER + 1:
                    break
                return number
        raise FormatError(f"a number in the graph is too large, at byte {self.place}")

    def count(self) -> int:
        """How many things follow, of at least a byte each."""
        count = self.number()
        if count > len(self.data) - self.place:
            raise FormatError(f"the graph announces {count} entries and ends before")
        return count

    def list(self) -> tuple[int, ...]:
        count = self.number()
        if count > MAX_RANK:
            raise FormatError(f"{count} dimensions are more than the {MAX_RANK} of a graph")
        return tuple(self.number() for _ in range(count))

    def text(self) -> str:
        try:
            return self.take(self.number()).decode()
        except UnicodeDecodeError as error:
            raise FormatError("a name in the graph is not UTF-8") from error

    def settings(self, defaults: Mapping[str, Number]) -> dict[str, Number]:
        count = self.number()
        if count > len(defaults):
            raise FormatError(f"a layer of the graph has {count} settings of {len(defaults)}")
        settings: dict[str, Number] = {}
        for name, default in list(defaults.items())[:count]:
            if isinstance(default, float):
                number: Number = struct.unpack("<d", self.take(8))[0]
            else:
                number = _unzigzag(self.number())
            settings[name] = number
        return settings

    def end(self) -> None:
        if self.place != len(self.data):
            raise FormatError(f"{len(self.data) - self.place} bytes are left after the graph")
