"""Several values become one: sums, products and concatenations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.graph.operations.activations import rectified
from asterism.graph.operations.operation import (
    Elementwise,
    Example,
    Operation,
    UnsupportedError,
    need,
    settings,
)
from asterism.graph.stages import Array, Call, FusedLayer, Given, NodeLike, Program, Shape


class OfTwo(Elementwise):
    """Two values of one shape, number by number."""

    arity = 2
    examples = (Example((3, 5, 7), inputs=2),)

    def capture(self, call: Call) -> int:
        one, other = call.args["self"], call.args["other"]
        alike = call.shape_of(one) == call.shape_of(other)
        if call.args.get("alpha", 1) != 1 or not alike:
            raise UnsupportedError
        return call.add(self.name, (call.value(one), call.value(other)))

    def emit(self, program: Program, layer: FusedLayer) -> None:
        source, other = (program.rows(value, layer) for value in layer.inputs)
        out = program.out(layer)
        step: dict[str, Any] = {"sizes": [out.size], "activation": layer.fused}
        program.add(self.kernels[0], layer, source, out, other=other, **step)


class Add(OfTwo):
    name, code = "add", 17
    captures = ("aten.add.Tensor", "aten.add_.Tensor")
    kernels = ("ADD",)

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return inputs[0] + inputs[1]

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda one, other: one + other

    def absorb(
        self, layer: FusedLayer, node: NodeLike, given: Given, shape: Shape
    ) -> FusedLayer | None:
        return rectified(layer, node)


class Mul(OfTwo):
    name, code = "mul", 18
    captures = ("aten.mul.Tensor", "aten.mul_.Tensor")
    kernels = ("MULTIPLY",)

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return inputs[0] * inputs[1]

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda one, other: one * other


class Cat(Operation):
    """One after the other along a dimension; the batch is dimension 0."""

    name, code, arity = "cat", 19, -1
    defaults = settings(dim=1)
    captures = ("aten.cat.default",)
    kernels = ("COPY_CHUNKS",)
    examples = (Example((3, 5, 7), inputs=2), Example((3, 5, 7), {"dim": 2}, inputs=3))

    def capture(self, call: Call) -> int:
        dim = call.args["dim"] % len(call.shape)
        if dim == 0:
            raise UnsupportedError
        inputs = tuple(call.value(tensor) for tensor in call.args["tensors"])
        return call.add("cat", inputs, {"dim": dim})

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        axis, first = node["dim"] - 1, inputs[0]
        need(0 <= axis < len(first), "its dimension")
        for shape in inputs:
            same = shape[:axis] + shape[axis + 1 :] == first[:axis] + first[axis + 1 :]
            need(same and len(shape) == len(first), f"shapes {list(inputs)}")
        return (*first[:axis], sum(shape[axis] for shape in inputs), *first[axis + 1 :])

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return np.concatenate(inputs, node["dim"])

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda *inputs: torch.cat(inputs, node["dim"])

    def emit(self, program: Program, layer: FusedLayer) -> None:
        axis, done = layer.node["dim"] - 1, 0
        whole = math.prod(program.shapes[layer.out][axis:])
        sources = [program.rows(value, layer) for value in layer.inputs]
        out = program.out(layer)
        for value, source in zip(layer.node.inputs, sources, strict=True):
            part = math.prod(program.shapes[value][axis:])
            sizes = [program.size(value) // part, part, whole, done]
            program.add("COPY_CHUNKS", layer, source, out, sizes=sizes)
            done += part


OPERATIONS = (Add(), Mul(), Cat())
