"""The graph of a PyTorch model, found by `torch.export`.

What cannot be translated stays in the graph by torch's own name, so that whoever runs it can say
which operation is missing.
"""

from __future__ import annotations

import copy
import inspect
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, export

from asterism.errors import InputError
from asterism.graph.network import Graph, Input, Node, living
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.activations import Activation
from asterism.graph.operations.constants import WeightNorm
from asterism.graph.operations.joining import OfTwo
from asterism.graph.operations.operation import Elementwise, Operation, UnsupportedError
from asterism.graph.operations.recurrent import Recurrent
from asterism.graph.stages import Call, Settings


def capture(model: nn.Module, example_inputs: Tensor | Sequence[Tensor]) -> Graph:
    """The layers of `model`, in eval mode, for inputs like the example and batches of any size.

    >>> from asterism.experiments.lenets import lenet300
    >>> [node.op for node in capture(lenet300(), torch.zeros(1, 1, 28, 28)).nodes]
    ['flatten', 'linear', 'relu', 'linear', 'relu', 'linear']
    """
    examples = _examples(example_inputs)
    names = list(model.state_dict())
    # Two examples, as torch.export takes a batch of one for a constant.
    batch = tuple(torch.zeros_like(x[:1]).expand(2, *x.shape[1:]) for x in examples)
    sizes = _by_parameter(model, [{0: Dim.AUTO} for _ in batch])
    try:
        with warnings.catch_warnings():
            # Of recurrent layers, which hold their weights in a list as well.
            warnings.filterwarnings("ignore", "The tensor attributes? self.*_flat_weights")
            program = export(copy.deepcopy(model).eval(), batch, dynamic_shapes=sizes)
    except Exception as error:  # whatever a stranger's forward and torch's tracer may raise
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"torch.export cannot trace {type(model).__name__}: {reason}") from error
    inputs = tuple(Input(tuple(x.shape[1:]), not x.is_floating_point()) for x in examples)
    return _Translation(program, names).graph(inputs)


def _examples(given: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The example of each input, if they can be some."""
    examples = (given,) if isinstance(given, Tensor) else tuple(given)
    if not examples or not all(isinstance(example, Tensor) for example in examples):
        raise InputError("give a tensor as example input, or a tuple of one for each input")
    for example in examples:
        whole = example.dtype in _WHOLE and example.ndim > 1
        if not whole and (example.ndim < 2 or not example.is_floating_point()):
            raise InputError(
                "the example input must be a batch of floating-point numbers or of ids,"
                f" not {example.dtype} of shape {tuple(example.shape)}"
            )
    return tuple(example.detach() for example in examples)


def _by_parameter(model: nn.Module, sizes: list[Any]) -> tuple[Any, ...]:
    """What belongs to each input as torch.export wants it: all that `*args` takes together."""
    kinds = [each.kind for each in inspect.signature(model.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return tuple(sizes)
    before = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*sizes[:before], tuple(sizes[before:])) if len(sizes) > before else tuple(sizes)


_WHOLE = (torch.int64, torch.int32)


def _hand_on(call: Call) -> int:
    """Of a call that changes nothing, as dropout in evaluation: the number of what it was given."""
    if call.args.get("train") or call.args.get("dtype") not in (None, torch.float32):
        raise UnsupportedError
    return call.value(call.args.get("self", call.args.get("input")))


_UNCHANGED = ("contiguous", "clone", "dropout", "feature_dropout", "alias", "detach", "detach_")
RULES: dict[str, Callable[[Call], int]] = {
    **{f"aten.{name}.default": _hand_on for name in _UNCHANGED},
    "aten.to.dtype": _hand_on,
    **{name: each.capture for each in OPERATIONS.values() for name in each.captures},
}


class _Translation:
    """Torch's graph as ours, node by node: the nodes so far, and the numbers of torch's values."""

    def __init__(self, program: ExportedProgram, names: list[str]) -> None:
        signature = program.graph_signature
        places = {name: place for place, name in enumerate(names)}
        held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self.weights = {inner: places[name] for inner, name in held.items() if name in places}
        self.values: dict[fx.Node, int] = {}
        self.nodes: list[Node] = []
        self.batches: set[Any] = set()
        self.inputs = [name for name in signature.user_inputs if isinstance(name, str)]
        self.program = program
        self.memory: dict[fx.Node, fx.Node] = {}  # of a view: the node whose memory it shares
        self.stale: set[fx.Node] = set()
        self.constants: set[fx.Node] = set()  # what is computed from weights alone
        # Values whose batch is torch's second dimension, as of a recurrent layer's states: ours
        # have it first, and all that is done to them is seen that way.
        self.turned: set[fx.Node] = set()
        self.items: dict[tuple[fx.Node, int], int] = {}  # results of torch's but the first

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
                self.batches.add(_symbol(self.batch))
            elif node.op == "call_function" and node.target is operator.getitem:
                self.take_item(node, node.args[0], node.args[1])
            elif node.op == "call_function" and isinstance(node.meta.get("val"), list):
                continue
            elif node.op == "call_function" and _shape(node) is not None:
                self.values[node] = self.translate(node)
                self.follow_memory(node, node.args[0] if node.args else None)
            elif node.op == "output":
                return living(Graph(inputs, tuple(self.nodes), self.results(node.args[0])))
        raise InputError("the network has no output")

    def results(self, found: Any) -> tuple[int, ...]:
        for place, each in enumerate(found):
            if not isinstance(each, fx.Node) or each not in self.values:
                raise InputError(f"result {place + 1} of the network is not made from its inputs")
            if each in self.turned:
                raise InputError(
                    f"result {place + 1} of the network has its batch as the second dimension:"
                    " return it with the batch first, by transpose(0, 1)"
                )
        return tuple(self.values[each] for each in found)

    def take_item(self, node: fx.Node, source: fx.Node, item: int) -> None:
        """One of several results; of a pooling the values alone, and not their places."""
        if isinstance(source.meta["val"], list):  # one part of a split
            self.values[node] = self.translate(source, item)
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
        if part or _shares_memory(node) or self.values[node] == self.values.get(first):
            self.memory[node] = self.memory.get(first, first)
        if not part and _schema(node).is_mutable:
            self.values[first] = self.values[node]
            owner = self.memory[node]
            sharing = {owner, *(each for each, its in self.memory.items() if its is owner)}
            self.stale |= sharing - {first, node}

    def add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.inputs) + len(self.nodes) - 1

    def value(self, node: Any) -> int:
        if isinstance(node, fx.Node) and node.name in self.weights:
            return self.add(Node("weight", (0,), (self.weights[node.name],)))
        if node not in self.values:
            raise UnsupportedError
        return self.values[node]

    def is_constant(self, node: fx.Node) -> bool:
        """Whether it depends on weights alone, and not on the input."""
        return node.name in self.weights or node in self.constants

    def translate(self, node: fx.Node, item: int | None = None) -> int:
        """The number of the value that `node` computes, or of one `item` of several."""
        length = len(self.nodes)
        rule = RULES.get(_name(node))
        try:
            args = node.all_input_nodes
            if rule is None:
                raise UnsupportedError
            if args and all(self.is_constant(arg) for arg in args) and _of_weights(rule):
                value = rule(_ConstantCall(self, node))
                self.constants.add(node)
                return value
            if _name(node) in _PERMUTES:
                return self.permute(node)
            call = self.call(node, item)
            if not call.shape or _symbol(call.shape[0]) not in self.batches:
                raise UnsupportedError
            return rule(call)
        except (UnsupportedError, KeyError) as error:
            del self.nodes[length:]
            self.turned.discard(node)
            made = [arg for arg in node.all_input_nodes if _name(arg) not in _ZEROS]
            read = [self.values[arg] for arg in made if arg in self.values]
            form = f" {error}" if isinstance(error, UnsupportedError) and error.args else ""
            return self.add(Node(_name(node) + form, tuple(read)))

    def call(self, node: fx.Node, item: int | None = None) -> _Call:
        """Of values that are turned, if all that it reads are, as if they had the batch first."""
        rule = RULES[_name(node)]
        recurrent = isinstance(getattr(rule, "__self__", None), Recurrent)
        read = [each for each in node.all_input_nodes if each in self.values]
        turned = [each in self.turned for each in (node.args[:1] if recurrent else read)]
        if not any(turned):
            return _Call(self, node, item)
        if not all(turned) or not _knows_dims(rule) or item is not None:
            raise UnsupportedError
        if self.is_turned(_shape(node)):
            self.turned.add(node)
        return _TurnedCall(self, node, item)

    def is_turned(self, shape: tuple[Any, ...] | None) -> bool:
        """Whether the batch is the second dimension, and not the first."""
        where = [_symbol(size) in self.batches for size in shape or ()]
        return where[:2] == [False, True]

    def permute(self, node: fx.Node) -> int:
        """Dimensions in another order, as ours have them: what only moves the batch is no layer."""
        args, rank = _arguments(node), len(_shape(node) or ())
        order = [dim % rank for dim in args.get("dims", range(rank))]
        if "dims" not in args:
            one, other = args["dim0"] % rank, args["dim1"] % rank
            order[one], order[other] = order[other], order[one]
        if node.args[0] in self.turned:
            order = [_swap(dim) for dim in order]
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


def _swap(dim: int) -> int:
    """A dimension of a value that is turned."""
    return 1 - dim if dim < 2 else dim


_ZEROS = ("aten.zeros.default", "aten.new_zeros.default")


def _of_weights(rule: Callable[[Call], int]) -> bool:
    """Whether a rule can be used on weights, which have no batch: dimensions do not matter."""
    operation = getattr(rule, "__self__", None)
    return rule is _hand_on or isinstance(operation, Elementwise | OfTwo | WeightNorm)


class _Call:
    """A call of torch's, as an operation sees it that may have been called."""

    def __init__(self, to: _Translation, node: fx.Node, item: int | None = None) -> None:
        self._to, self._node, self.item = to, node, item
        self.name, self.before = _name(node), 0
        self.args: Mapping[str, Any] = _arguments(node)
        self.shape = self.shape_of(node)
        if item is not None:
            parts, dim = node.meta["val"], self.args["dim"]
            self.shape = tuple(parts[item].shape)
            unbound = len(self.shape) < len(self.shape_of(self.args["self"]))
            self.before = item if unbound else sum(part.shape[dim] for part in parts[:item])

    @property
    def sizes(self) -> tuple[int, ...]:
        if not all(isinstance(size, int) for size in self.shape[1:]):
            raise UnsupportedError
        return self.shape[1:]

    def shape_of(self, argument: Any) -> tuple[Any, ...]:
        shape = _shape(argument) if isinstance(argument, fx.Node) else None
        if shape is None:
            raise UnsupportedError
        return shape

    def layer(self, op: str, settings: Settings = (), *weights: Any) -> int:
        value = self.value(self._node.args[0])
        return self._to.add(Node(op, (value,), self._places(weights), settings))

    def _places(self, weights: Sequence[Any]) -> list[int | None]:
        """The numbers of weights; of those that are made of others, their values'."""
        to = self._to
        return [
            None if weight is None
            else -to.values[weight] if weight in to.constants
            else to.weights[weight.name]
            for weight in weights
        ]  # fmt: skip

    def constant(self, op: str, settings: Settings, *weights: Any) -> int:
        return self._to.add(Node(op, (0,), self._places(weights), settings))

    def add(self, op: str, inputs: tuple[int, ...], settings: Settings = ()) -> int:
        return self._to.add(Node(op, inputs, settings=settings))

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
        return isinstance(argument, fx.Node) and _name(argument) in _ZEROS

    def value(self, argument: Any) -> int:
        return self._to.value(argument)

    def batched(self, argument: Any) -> bool:
        return not self._to.is_constant(argument)

    def maker(self, value: int) -> Node | None:
        place = value - len(self._to.inputs)
        return self._to.nodes[place] if place >= 0 else None


class _ConstantCall(_Call):
    """A call on weights alone, whose result is a value: as if it had a batch."""

    def __init__(self, to: _Translation, node: fx.Node) -> None:
        super().__init__(to, node)
        self.shape = (to.batch, *self.shape)


class _TurnedCall(_Call):
    """A call on values that are turned, as if they had the batch first."""

    def __init__(self, to: _Translation, node: fx.Node, item: int | None = None) -> None:
        super().__init__(to, node, item)
        args = dict(self.args)
        if isinstance(args.get("dim"), int | list):
            dims = args["dim"] if isinstance(args["dim"], list) else [args["dim"]]
            rank = len(self.shape_of(node.all_input_nodes[0]))
            dims = [_swap(dim % rank) for dim in dims]
            args["dim"] = dims if isinstance(args["dim"], list) else dims[0]
        if "batch_first" in args:
            args["batch_first"] = not args["batch_first"]
        self.args = args

    def shape_of(self, argument: Any) -> tuple[Any, ...]:
        shape = super().shape_of(argument)
        return (shape[1], shape[0], *shape[2:]) if argument in self._to.turned else shape


def _shape(node: fx.Node) -> tuple[Any, ...] | None:
    """The shape of a node's result, or of the first of several; None where that is a number."""
    result = node.meta.get("val")
    result = result[0] if isinstance(result, tuple | list) else result
    return tuple(result.shape) if isinstance(result, Tensor) else None


def _symbol(size: Any) -> Any:
    """A size as an expression: to compare torch's own would make it decide."""
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _shares_memory(node: fx.Node) -> bool:
    """Whether the result is, or may be, the first argument's memory."""
    return any(each.alias_info is not None for each in _schema(node).returns)


def _schema(node: fx.Node) -> Any:
    """What the operation takes and gives; every node but inputs and outputs has one."""
    return node.target._schema  # type: ignore[union-attr]


def _name(node: fx.Node) -> str:
    return str(node.target)


def _arguments(node: fx.Node) -> dict[str, Any]:
    """All arguments by name, defaults included."""
    formal = _schema(node).arguments
    values = {argument.name: argument.default_value for argument in formal}
    return {
        **values,
        **{argument.name: value for argument, value in zip(formal, node.args, strict=False)},
        **node.kwargs,
    }
