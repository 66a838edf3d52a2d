"""The graph of a PyTorch model, found by `torch.export`.

What cannot be translated stays in the graph by torch's own name, so that whoever runs it can say
which operation is missing.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, export

from asterism.errors import InputError
from asterism.graph.capture_rules import RULES, Arguments, Translation, UnsupportedError, shape_of
from asterism.graph.network import Graph, Node


def capture(model: nn.Module, example_inputs: Tensor | Sequence[Tensor]) -> Graph:
    """The layers of `model`, in eval mode, for inputs like the example and batches of any size.

    >>> from asterism.experiments.lenets import lenet300
    >>> [node.op for node in capture(lenet300(), torch.zeros(1, 1, 28, 28)).nodes]
    ['flatten', 'linear', 'relu', 'linear', 'relu', 'linear']
    """
    inputs = (example_inputs,) if isinstance(example_inputs, Tensor) else tuple(example_inputs)
    if len(inputs) != 1 or not isinstance(inputs[0], Tensor):
        raise InputError(f"a network with {len(inputs)} inputs cannot be captured: give one tensor")
    example = inputs[0].detach()
    if example.ndim < 2 or not example.is_floating_point():
        raise InputError(
            "the example input must be a batch of floating-point numbers,"
            f" not {example.dtype} of shape {tuple(example.shape)}"
        )
    names = list(model.state_dict())
    # Two examples, as torch.export takes a batch of one for a constant.
    batch = torch.zeros_like(example[:1]).expand(2, *example.shape[1:])
    try:
        program = export(copy.deepcopy(model).eval(), (batch,), dynamic_shapes=({0: Dim.AUTO},))
    except Exception as error:  # whatever a stranger's forward and torch's tracer may raise
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"torch.export cannot trace {type(model).__name__}: {reason}") from error
    return _Translation(program, names).graph(tuple(example.shape[1:]))


class _Translation(Translation):
    """Torch's graph as ours, node by node, by the rules of `captured_ops`."""

    def __init__(self, program: ExportedProgram, names: list[str]) -> None:
        signature = program.graph_signature
        places = {name: place for place, name in enumerate(names)}
        held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        super().__init__({inner: places[name] for inner, name in held.items() if name in places})
        self.inputs = set(signature.user_inputs)
        self.program = program
        self.memory: dict[fx.Node, fx.Node] = {}  # of a view: the node whose memory it shares
        self.stale: set[fx.Node] = set()

    def graph(self, shape: tuple[int, ...]) -> Graph:
        for node in self.program.graph.nodes:
            if any(each in self.stale for each in node.all_input_nodes):
                raise InputError(
                    "the network reads a value after it was overwritten in place through a view:"
                    f" copy it before {node.name}"
                )
            if node.op == "placeholder" and node.name in self.inputs:
                self.values[node] = 0
                self.batch = node.meta["val"].shape[0]
            elif node.op == "call_function" and node.target is operator.getitem:
                if node.args[1] == 0:  # the values of a pooling, and not their places
                    self.values[node] = self.value(node.args[0])
            elif node.op == "call_function" and shape_of(node) is not None:
                self.values[node] = self.translate(node)
                self.follow_memory(node)
            elif node.op == "output":
                results = node.args[0]
                if len(results) != 1 or results[0] not in self.values:
                    raise InputError(f"the network gives {len(results)} results; one can be run")
                return Graph(shape, _living(self.nodes, self.values[results[0]]))
        raise InputError("the network has no output")

    def follow_memory(self, node: fx.Node) -> None:
        """A value that is overwritten is the new one; what else shares its memory is stale."""
        first = node.args[0]
        if not isinstance(first, fx.Node):
            return
        if _shares_memory(node) or self.values[node] == self.values.get(first):
            self.memory[node] = self.memory.get(first, first)
        if _schema(node).is_mutable:
            self.values[first] = self.values[node]
            owner = self.memory[node]
            sharing = {owner, *(each for each, its in self.memory.items() if its is owner)}
            self.stale |= sharing - {first, node}

    def translate(self, node: fx.Node) -> int:
        """The number of the value that `node` computes."""
        length = len(self.nodes)
        try:
            if shape_of(node)[:1] != (self.batch,):
                raise UnsupportedError
            return RULES[_name(node)](self, node, _arguments(node))
        except (UnsupportedError, KeyError):
            del self.nodes[length:]
            read = [self.values[arg] for arg in node.all_input_nodes if arg in self.values]
            return self.add(Node(_name(node), tuple(read)))


def _living(nodes: list[Node], output: int) -> tuple[Node, ...]:
    """The nodes that the output needs, renumbered."""
    needed = {output}
    for place in range(output, 0, -1):
        if place in needed:
            needed |= set(nodes[place - 1].inputs)
    numbers = {value: number for number, value in enumerate(sorted(needed | {0}))}
    return tuple(
        Node(node.op, tuple(numbers[value] for value in node.inputs), node.weights, node.settings)
        for place, node in enumerate(nodes, 1)
        if place in needed
    )


def _shares_memory(node: fx.Node) -> bool:
    """Whether the result is, or may be, the first argument's memory."""
    return any(each.alias_info is not None for each in _schema(node).returns)


def _schema(node: fx.Node) -> Any:
    """What the operation takes and gives; every node but inputs and outputs has one."""
    return node.target._schema  # type: ignore[union-attr]


def _name(node: fx.Node) -> str:
    return str(node.target)


def _arguments(node: fx.Node) -> Arguments:
    """All arguments by name, defaults included."""
    formal = _schema(node).arguments
    values = {argument.name: argument.default_value for argument in formal}
    return {
        **values,
        **{argument.name: value for argument, value in zip(formal, node.args, strict=False)},
        **node.kwargs,
    }
