"""Calls of a torch program as the operations see them: with the batch first, arguments by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx

from asterism.graph.capture.draft import Draft
from asterism.graph.capture.exported import (
    ZEROS,
    arguments,
    known_sizes,
    name_of,
    shape_of_result,
)
from asterism.graph.network import Node
from asterism.graph.operations.operation import UnsupportedError
from asterism.graph.stages import Settings


class TorchCall:
    """A call of torch's, as an operation sees it that may have been called."""

    def __init__(self, to: Draft, node: fx.Node, item: int | None = None) -> None:
        self._to, self._node, self.item = to, node, item
        self.name, self.before = name_of(node), 0
        self.args: Mapping[str, Any] = arguments(node)
        self.shape = self.shape_of(node)
        if item is not None:
            parts, dim = node.meta["val"], self.args["dim"]
            self.shape = tuple(parts[item].shape)
            unbound = len(self.shape) < len(self.shape_of(self.args["self"]))
            self.before = item if unbound else sum(part.shape[dim] for part in parts[:item])

    @property
    def sizes(self) -> tuple[int, ...]:
        return known_sizes(self.shape[1:])

    def shape_of(self, argument: Any) -> tuple[Any, ...]:
        shape = shape_of_result(argument) if isinstance(argument, fx.Node) else None
        if shape is None:
            raise UnsupportedError
        return shape

    def layer(self, op: str, settings: Settings = (), *weights: Any) -> int:
        value = self.value(self._node.args[0])
        node = Node(op, (value,), self._places(weights), settings)
        return self._to.add(node, self.sizes if op == "flatten" else None)

    def _places(self, weights: Sequence[Any]) -> list[int | None]:
        """The numbers of weights; of those that are made of others, their values'."""
        to = self._to
        return [
            weight if weight is None or isinstance(weight, int)
            else -to.values[weight] if weight in to.constants
            else to.weights[weight.name]
            for weight in weights
        ]  # fmt: skip

    def constant(self, op: str, settings: Settings, *weights: Any) -> int:
        return self._to.add(Node(op, (0,), self._places(weights), settings))

    def add(
        self,
        op: str,
        inputs: tuple[int, ...],
        settings: Settings = (),
        *weights: Any,
        sizes: tuple[int, ...] | None = None,
    ) -> int:
        if isinstance(settings, tuple):
            settings = known_sizes(settings)
        return self._to.add(Node(op, inputs, self._places(weights), settings), sizes)

    def mask(self, argument: Any, hides: bool = False) -> tuple[dict[str, int], tuple[Any, ...]]:
        return self._to.fixed.mask(argument, hides)

    def width(self, value: int) -> int | None:
        size = self._to.shapes.get(value, (-1,))[-1]
        return None if size < 0 else size

    def add_layer(
        self, op: str, inputs: tuple[int, ...], weights: Sequence[Any], settings: Settings = ()
    ) -> int:
        return self._to.add(Node(op, inputs, self._places(weights), settings))

    def wants(self, item: int) -> bool:
        users = [each for each in self._node.users if each.args[1] == item]
        return any(each.users for each in users)

    def give(self, item: int, value: int) -> None:
        self._to.items[self._node, item] = value

    def state(self, argument: Any) -> int:
        if argument not in self._to.turned:
            raise UnsupportedError
        return self.value(argument)

    def is_zeros(self, argument: Any) -> bool:
        return isinstance(argument, fx.Node) and name_of(argument) in ZEROS

    def value(self, argument: Any) -> int:
        return self._to.value(argument)

    def batched(self, argument: Any) -> bool:
        return not self._to.is_constant(argument) and argument not in self._to.tables

    def maker(self, value: int) -> Node | None:
        return self._to.maker(value)


class ConstantCall(TorchCall):
    """A call on weights alone, whose result is a value: as if it had a batch."""

    def __init__(self, to: Draft, node: fx.Node) -> None:
        super().__init__(to, node)
        self.shape = (to.batch, *self.shape)


class TurnedCall(TorchCall):
    """A call on values that are turned, as if they had the batch first."""

    def __init__(self, to: Draft, node: fx.Node, item: int | None = None) -> None:
        super().__init__(to, node, item)
        args = dict(self.args)
        if isinstance(args.get("dim"), int | list):
            dims = args["dim"] if isinstance(args["dim"], list) else [args["dim"]]
            rank = len(self.shape_of(node.all_input_nodes[0]))
            dims = [swapped(dim % rank) for dim in dims]
            args["dim"] = dims if isinstance(args["dim"], list) else dims[0]
        if "batch_first" in args:
            args["batch_first"] = not args["batch_first"]
        self.args = args

    def shape_of(self, argument: Any) -> tuple[Any, ...]:
        shape = super().shape_of(argument)
        return (shape[1], shape[0], *shape[2:]) if argument in self._to.turned else shape


def swapped(dim: int) -> int:
    """A dimension of a value that is turned."""
    return 1 - dim if dim < 2 else dim
