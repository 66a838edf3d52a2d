"""ONNX's nodes as layers of ours, one by one.

What the graph has no operation for keeps ONNX's name, and all that is made from it too: the first
such name is what a user is told.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np

from asterism.errors import InputError
from asterism.graph.network import Graph
from asterism.graph.onnx.calls import About, Allowance, OnnxCall, Operand, Result
from asterism.graph.onnx.folding import folded
from asterism.graph.onnx.inputs import Inputs
from asterism.graph.onnx.layers import ReadLayers
from asterism.graph.onnx.reading import array_of
from asterism.graph.onnx.rules import RULES
from asterism.graph.onnx.values import BATCH, Missing, Value
from asterism.graph.operations.operation import MisfitError, UnsupportedError
from asterism.graph.stages import Array

LOOPS = ("Loop", "Scan", "SequenceMap")
# What a rule may raise over attributes and sizes that do not fit together.
MISFITS = (UnsupportedError, MisfitError, ArithmeticError, LookupError, TypeError, ValueError)


class Translation:
    """A network of ONNX's: the layers so far, and what each name stands for."""

    def __init__(self, model: Any, inputs: Inputs) -> None:
        versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
        used = frozenset(_used(model.graph))
        budget = Allowance(model.ByteSize())
        self.about = About(max(versions, default=1), inputs.batch, budget, used)
        self.layers = ReadLayers(inputs.taken)
        self.root, self.known = model.graph, ChainMap[str, Operand](dict(inputs.known))

    def network(self) -> tuple[Graph, dict[str, Array]]:
        self.run(self.root, self.known)
        return self.layers.graph(tuple(self.result(each.name) for each in self.root.output))

    def result(self, name: str) -> int:
        found = self.known.get(name)
        if not isinstance(found, Value | Missing):
            raise InputError(f"the result {name} is not made from the network's inputs")
        return found.number

    def run(self, graph: Any, known: MutableMapping[str, Operand]) -> None:
        """All nodes of a graph, or of a branch."""
        for tensor in graph.initializer:
            known[tensor.name] = array_of(tensor)
        for node in graph.node:
            _refuse_quantised(node, known)
            if node.op_type in LOOPS:
                raise InputError(f"the network has a loop ({node.op_type}): export it unrolled")
            call = OnnxCall(node, known, self.layers, self.about)
            found = self.branch(call, known) if node.op_type == "If" else self.translate(call)
            known.update(zip(node.output, found, strict=False))

    def branch(self, call: OnnxCall, known: MutableMapping[str, Operand]) -> list[Operand]:
        """The results of the branch that is taken, where that is known in advance."""
        condition = known.get(call.node.input[0]) if call.has(0) else None
        if condition is None or isinstance(condition, Value | Missing):
            raise InputError(
                "the network chooses by its data what to compute (If): fix the input that decides,"
                " as in --fix sr=16000, give another size if it is that (--shape), or export it"
                " without the choice"
            )
        taken = call.attr("then_branch" if condition.any() else "else_branch")
        if taken is None:
            raise InputError("the network has a choice (If) without its branches")
        inner = ChainMap[str, Operand]({}, *_maps(known))
        self.run(taken, inner)
        return [inner[each.name] for each in taken.output if each.name in inner]

    def translate(self, call: OnnxCall) -> list[Operand]:
        count = len(self.layers.nodes)
        try:
            found = self.results(call)
            return [*found] if isinstance(found, list) else [found]
        except InputError:
            raise
        except MISFITS as error:
            self.layers.cut(count)
            form = f" {error}" if isinstance(error, UnsupportedError) and error.args else ""
            if call.op in RULES and not form:
                form = " as it is used here"
            name = f"{call.node.domain or 'onnx'}.{call.op}{form}"
            return self.missing(call, name)

    def results(self, call: OnnxCall) -> Result:
        if call.node.domain not in ("", "ai.onnx"):
            raise UnsupportedError
        operands = [call.operand(place) for place in range(call.count) if call.has(place)]
        alone = not any(isinstance(each, Value) for each in operands)
        if alone and not _makes_a_batch(call):
            return folded(call)
        if call.op not in RULES:
            raise UnsupportedError
        return RULES[call.op](call)

    def missing(self, call: OnnxCall, name: str) -> list[Operand]:
        """The results of what is not known; its weights are kept all the same."""
        given = {each: call.known.get(each) for each in call.node.input}
        numbers = [each.number for each in given.values() if isinstance(each, Value | Missing)]
        weights = [
            self.layers.weight(each, array)
            for each, array in given.items()
            if isinstance(array, np.ndarray) and array.dtype.kind == "f"
        ]
        made = self.layers.missing(name, tuple(numbers), weights)
        return [Missing(made)] * max(1, len(call.node.output))


def _makes_a_batch(call: OnnxCall) -> bool:
    """Whether numbers are repeated as often as there are examples."""
    place = {"ConstantOfShape": 0, "Expand": 1}.get(call.op)
    return place is not None and any(n and n % BATCH == 0 for n in call.array(place).flat)


def _refuse_quantised(node: Any, known: MutableMapping[str, Operand]) -> None:
    marks = ("QLinear", "Quantize", "DynamicQuantize", "QAttention", "QGemm")
    whole = node.op_type.startswith(marks) or node.op_type.endswith("Integer")
    later = node.op_type == "DequantizeLinear" and isinstance(known.get(node.input[0]), Value)
    if whole or later:
        raise InputError(
            f"the network is quantised ({node.op_type}): give the one before, in floats; few bits"
            " are what asterism compress --bits makes of it"
        )


def _maps(known: MutableMapping[str, Operand]) -> list[MutableMapping[str, Operand]]:
    return list(known.maps) if isinstance(known, ChainMap) else [known]


def _used(graph: Any) -> Iterator[str]:
    """The names that nodes read, those in branches too, and that are results."""
    yield from (each.name for each in graph.output)
    for node in graph.node:
        yield from node.input
        for each in node.attribute:
            if each.HasField("g"):
                yield from _used(each.g)
