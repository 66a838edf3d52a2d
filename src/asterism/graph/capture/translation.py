"""Torch's operations as ours, node by node.

What cannot be translated stays in the graph by torch's own name, so that whoever runs it can say
which operation is missing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from asterism.errors import InputError
from asterism.graph.capture.calls import ConstantCall, TorchCall, TurnedCall, swapped
from asterism.graph.capture.draft import Draft
from asterism.graph.capture.exported import (
    ZEROS,
    arguments,
    free_dimension,
    known_sizes,
    name_of,
    schema,
    shape_of_result,
    shares_memory,
    symbol,
)
from asterism.graph.network import Graph, Input, Node, living
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.activations import Activation
from asterism.graph.operations.constants import WeightNorm
from asterism.graph.operations.joining import OfTwo
from asterism.graph.operations.operation import Elementwise, Operation, UnsupportedError
from asterism.graph.operations.sequences.recurrent import Recurrent
from asterism.graph.operations.shaping import Reshape
from asterism.graph.stages import Call


def _hand_on(call: Call) -> int:
    """The value that a call was given, where it changes nothing: dropout in evaluation."""
    if call.args.get("train") or call.args.get("dtype") not in (None, torch.float32):
        raise UnsupportedError
    return call.value(call.args.get("self", call.args.get("input")))


_UNCHANGED = ("contiguous", "clone", "dropout", "feature_dropout", "alias", "detach", "detach_")
RULES: dict[str, Callable[[Call], int]] = {
    **{f"aten.{name}.default": _hand_on for name in _UNCHANGED},
    "aten.to.dtype": _hand_on,
    **{name: each.capture for each in OPERATIONS.values() for name in each.captures},
}


class Translation(Draft):
    """Torch's graph as ours, node by node."""

    def graph(self, inputs: tuple[Input, ...]) -> Graph:
        for node in self.program.graph.nodes:
            if any(each in self.stale for each in node.all_input_nodes):
                raise InputError(
                    "the network reads a value after it was overwritten in place through a view:"
                    f" copy it before {node.name}"
                )
            if node.op == "placeholder" and node.name in self.inputs:
                self.values[node] = self.inputs.index(node.name)
                self.batch = node.meta["val"].shape[0]
                self.batches.add(symbol(self.batch))
                self.free.append(free_dimension(shape_of_result(node) or ()))
                self.fixed.batches = self.batches
                self.remember(node)
            elif node.op == "call_function" and node.target is operator.getitem:
                self.take_item(node, node.args[0], node.args[1])
            elif node.op == "call_function" and isinstance(node.meta.get("val"), list):
                continue
            elif node.op == "call_function" and shape_of_result(node) is not None:
                self.values[node] = self.translate(node)
                self.remember(node)
                self.follow_memory(node, node.args[0] if node.args else None)
            elif node.op == "output":
                inputs = tuple(each._replace(free=self.free[i]) for i, each in enumerate(inputs))
                graph = living(Graph(inputs, tuple(self.nodes), self.results(node.args[0])))
                if not graph.unknown:  # else how its results lie is not known either
                    self.refuse_turned(node.args[0])
                return graph
        raise InputError("the network has no output")

    def results(self, found: Any) -> tuple[int, ...]:
        for place, each in enumerate(found):
            if not isinstance(each, fx.Node) or each not in self.values:
                raise InputError(f"result {place + 1} of the network is not made from its inputs")
        return tuple(self.values[each] for each in found)

    def refuse_turned(self, found: Any) -> None:
        for place, each in enumerate(found):
            if each in self.turned:
                raise InputError(
                    f"result {place + 1} of the network has its batch as the second dimension:"
                    " return it with the batch first, by transpose(0, 1)"
                )

    def take_item(self, node: fx.Node, source: fx.Node, item: int) -> None:
        """One of several results; of a pooling the values alone, and not their places."""
        if isinstance(source.meta["val"], list):  # one part of a split
            self.values[node] = self.translate(source, item)
            self.remember(node)
            self.follow_memory(node, source.args[0])
        elif (source, item) in self.items:
            self.values[node] = self.items[source, item]
            self.turned.add(node)
        elif item == 0:
            self.values[node] = self.value(source)
            self.turned |= {node} if source in self.turned else set()

    def follow_memory(self, node: fx.Node, first: Any) -> None:
        """A value that is overwritten is the new one; what else shares its memory is stale."""
        if not isinstance(first, fx.Node):
            return
        part = node.target is operator.getitem
        if part or shares_memory(node) or self.values[node] == self.values.get(first):
            self.memory[node] = self.memory.get(first, first)
        if not part and schema(node).is_mutable:
            self.values[first] = self.values[node]
            owner = self.memory[node]
            sharing = {owner, *(each for each, its in self.memory.items() if its is owner)}
            self.stale |= sharing - {first, node}

    def translate(self, node: fx.Node, item: int | None = None) -> int:
        """The number of the value that `node` computes, or of one `item` of several."""
        length = len(self.nodes)
        first = len(self.inputs) + length
        rule = RULES.get(name_of(node))
        try:
            args = node.all_input_nodes
            of_weights = args and all(self.is_constant(arg) for arg in args)
            if rule is not None and of_weights and _of_weights(rule):
                value = rule(ConstantCall(self, node))
                self.constants.add(node)
                return value
            if self.fixed.is_fixed(node):
                if item is not None:  # a part of a weight
                    raise UnsupportedError
                return self.table(node)
            if rule is None:
                raise UnsupportedError
            hidden = self.added_mask(node) if name_of(node) == "aten.add.Tensor" else None
            if hidden is not None:
                return hidden
            if name_of(node) in _PERMUTES:
                return self.permute(node)
            call = self.call(node, item)
            if not call.shape or symbol(call.shape[0]) not in self.batches:
                raise UnsupportedError
            return rule(call)
        except (UnsupportedError, KeyError) as error:
            del self.nodes[length:]
            self.shapes = {value: self.shapes[value] for value in self.shapes if value < first}
            self.turned.discard(node)
            made = [arg for arg in node.all_input_nodes if name_of(arg) not in ZEROS]
            read = [self.values[arg] for arg in made if arg in self.values]
            form = f" {error}" if isinstance(error, UnsupportedError) and error.args else ""
            if rule is not None and not form:
                form = " as it is used here"
            return self.add(Node(name_of(node) + form, tuple(read)))

    def table(self, node: fx.Node) -> int:
        """A value that is the beginning of a weight, whatever made it."""
        source, sizes = self.fixed.table(node), shape_of_result(node) or ()
        whole, place = self.fixed.held[source.name].shape, (self.weights[source.name],)
        wanted = iter(size for size in sizes if not (isinstance(size, int) and size == 1))
        found = [1 if size == 1 else next(wanted) for size in whole]
        at = [self.dimension(size) for size in found]
        inputs = {value for value, dim in at if dim}
        if len(inputs) > 1:
            raise UnsupportedError
        if inputs:
            value = self.add(Node("cut", tuple(inputs), place, tuple(dim for _, dim in at)))
        else:
            value = self.add(Node("weight", (0,), place))
        for axis, (size, all_of_it) in enumerate(zip(found, whole, strict=True)):
            if isinstance(size, int) and size != all_of_it:
                value = self.add(Node("slice", (value,), (), {"dim": axis + 1, "size": size}))
        self.tables.add(node)
        if len(found) == len(sizes):
            return value
        return self.add(Node("reshape", (value,), settings=known_sizes(sizes)))

    def dimension(self, size: Any) -> tuple[int, int]:
        """The input and its dimension whose size a symbol is; dimension 0 for a number."""
        if isinstance(size, int):
            return 0, 0
        for node, value in self.values.items():
            if node.op == "placeholder":
                symbols = [symbol(each) for each in shape_of_result(node) or ()]
                if symbol(size) in symbols[1:]:
                    return value, symbols.index(symbol(size), 1)
        raise UnsupportedError

    def added_mask(self, node: fx.Node) -> int | None:
        """The scores of attention to which minus infinity is added where a key is not seen."""
        scores, mask = node.args[:2]
        if not isinstance(mask, fx.Node) or mask in self.tables or self.is_constant(mask):
            return None
        if not self.fixed.is_fixed(mask) or self.fixed.mask(mask) != ({"causal": 1}, ()):
            return None
        return self.add(Node("hide", (self.value(scores),), settings={"causal": 1}))

    def call(self, node: fx.Node, item: int | None = None) -> TorchCall:
        """The call of a node; where all that it reads is turned, as if it had the batch first."""
        rule = RULES[name_of(node)]
        recurrent = isinstance(getattr(rule, "__self__", None), Recurrent)
        read = [each for each in node.all_input_nodes if each in self.values]
        turned = [each in self.turned for each in (node.args[:1] if recurrent else read)]
        if not any(turned):
            return TorchCall(self, node, item)
        if not all(turned) or not _knows_dims(rule) or item is not None:
            raise UnsupportedError
        if self.is_turned(shape_of_result(node)):
            self.turned.add(node)
        return TurnedCall(self, node, item)

    def is_turned(self, shape: tuple[Any, ...] | None) -> bool:
        """Whether the batch is the second dimension, and not the first."""
        where = [symbol(size) in self.batches for size in shape or ()]
        return where[:2] == [False, True]

    def permute(self, node: fx.Node) -> int:
        """Dimensions in another order, as ours have them: what only moves the batch is no layer."""
        args, rank = arguments(node), len(shape_of_result(node) or ())
        order = [dim % rank for dim in args.get("dims", range(rank))]
        if "dims" not in args:
            one, other = args["dim0"] % rank, args["dim1"] % rank
            order[one], order[other] = order[other], order[one]
        if node.args[0] in self.turned:
            order = [swapped(dim) for dim in order]
        if 0 not in order[:2]:
            raise UnsupportedError
        if order[0] != 0:
            self.turned.add(node)
            order[:2] = order[1::-1]
        value = self.value(node.args[0])
        if order == list(range(rank)):
            return value
        return self.add(Node("permute", (value,), settings=tuple(order[1:])))


_PERMUTES = ("aten.permute.default", "aten.transpose.int")
# They name dimensions by `dim` alone, if at all.
_BY_DIM = ("linear", "layer_norm", "softmax", "add", "mul", "cat", "slice", "mean", "lstm", "gru")


def _knows_dims(rule: Callable[[Call], int]) -> bool:
    """Whether an operation is the same for values that are turned, but for its `dim`."""
    operation = getattr(rule, "__self__", None)
    named = isinstance(operation, Operation) and operation.name in _BY_DIM
    return rule is _hand_on or isinstance(operation, Activation) or named


def _of_weights(rule: Callable[[Call], int]) -> bool:
    """Whether a rule can be used on weights, which have no batch: it names no dimension."""
    operation = getattr(rule, "__self__", None)
    return rule is _hand_on or isinstance(operation, Elementwise | OfTwo | Reshape | WeightNorm)
