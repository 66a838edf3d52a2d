"""Several values become one: sums, products and their like, and concatenations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.graph.operations.activations import rectified, scaled
from asterism.graph.operations.constants import aligned, is_number
from asterism.graph.operations.operation import (
    Example,
    Operation,
    UnsupportedError,
    need,
    settings,
)
from asterism.graph.stages import Array, Call, FusedLayer, Given, Mask, NodeLike, Program, Shape


class OfTwo(Operation):
    """Two values, number by number; a dimension of size 1 is repeated along the other's."""

    arity = 2
    examples = (Example((3, 5, 7), inputs=2),)

    def capture(self, call: Call) -> int:
        one, other = call.args["self"], call.args["other"]
        if is_number(other):
            return self.with_number(call, call.value(one), float(other))
        first, second = aligned(call, one), aligned(call, other)
        alpha = call.args.get("alpha", 1)
        if alpha != 1:
            second = scaled(call, second, float(alpha), 0.0)
        return call.add(self.name, (first, second))

    def with_number(self, call: Call, value: int, number: float) -> int:
        """With one number, the same for all."""
        raise UnsupportedError

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        one, other = inputs
        fits = len(one) == len(other)
        fits = fits and all(a == b or 1 in (a, b) for a, b in zip(one, other, strict=True))
        need(fits, f"shapes {list(inputs)}")
        return tuple(b if a == 1 else a for a, b in zip(one, other, strict=True))

    def read(self, layer: FusedLayer, needed: Mask, shape: Shape) -> Mask:
        repeated = tuple(a for a, size in enumerate(shape) if size != needed.shape[a])
        return np.asarray(needed.any(repeated, keepdims=True)) if repeated else needed

    def emit(self, program: Program, layer: FusedLayer) -> None:
        source, other = (program.rows(value, layer) for value in layer.inputs)
        shapes = [program.shapes[value] for value in layer.node.inputs]
        out = program.out(layer)
        step: dict[str, Any] = {"other": other, "activation": layer.fused}
        if shapes[0] == shapes[1] and self.kernels[0] != "COMBINE":
            program.add(self.kernels[0], layer, source, out, **step, sizes=[out.size])
            return
        axes = _axes(program.shapes[layer.out], *shapes)
        sizes = [COMBINATIONS.index(self.name), len(axes), out.size]
        program.add("COMBINE", layer, source, out, **step, sizes=sizes, data=(axes,))


COMBINATIONS = (
    "add",
    "mul",
    "sub",
    "div",
    "maximum",
    "minimum",
    "prelu",
    "equal",
    "greater",
    "keep",
)  # as in the kernel


def _axes(shape: Shape, one: Shape, other: Shape) -> Any:
    """Size, and steps of the inputs, along each axis; neighbours that both repeat alike are one."""
    axes: list[list[int]] = []
    steps = [1, 1]
    for size, *own in reversed(list(zip(shape, one, other, strict=True))):
        strides = [step if each == size else 0 for step, each in zip(steps, own, strict=True)]
        steps = [step * each for step, each in zip(steps, own, strict=True)]
        if size == 1:
            continue
        if axes and strides == [axes[-1][0] * step for step in axes[-1][1:]]:
            axes[-1][0] *= size
        else:
            axes.append([size, *strides])
    return np.array(axes[::-1] or [[1, 1, 1]], np.int64)


class Add(OfTwo):
    name, code = "add", 17
    captures = ("aten.add.Tensor", "aten.add_.Tensor")
    kernels = ("ADD", "COMBINE")

    def with_number(self, call: Call, value: int, number: float) -> int:
        return scaled(call, value, 1.0, number * call.args["alpha"])

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
    kernels = ("MULTIPLY", "COMBINE")

    def with_number(self, call: Call, value: int, number: float) -> int:
        return scaled(call, value, number, 0.0)

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return inputs[0] * inputs[1]

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda one, other: one * other


class Sub(OfTwo):
    name, code = "sub", 25
    captures = ("aten.sub.Tensor", "aten.sub_.Tensor", "aten.rsub.Scalar")
    kernels = ("COMBINE",)

    def with_number(self, call: Call, value: int, number: float) -> int:
        alpha = call.args["alpha"]
        if call.name == "aten.rsub.Scalar":
            return scaled(call, value, -alpha, number)
        return scaled(call, value, 1.0, -alpha * number)

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return inputs[0] - inputs[1]

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda one, other: one - other


class Div(OfTwo):
    name, code = "div", 26
    captures = ("aten.div.Tensor", "aten.div_.Tensor")
    kernels = ("COMBINE",)

    def with_number(self, call: Call, value: int, number: float) -> int:
        if number == 0:
            raise UnsupportedError
        return scaled(call, value, 1 / number, 0.0)

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return inputs[0] / inputs[1]

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda one, other: one / other


class Maximum(OfTwo):
    name, code = "maximum", 27
    captures = ("aten.maximum.default",)
    kernels = ("COMBINE",)

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return np.maximum(inputs[0], inputs[1])

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return torch.maximum


class Minimum(OfTwo):
    name, code = "minimum", 28
    captures = ("aten.minimum.default",)
    kernels = ("COMBINE",)

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return np.minimum(inputs[0], inputs[1])

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return torch.minimum


class Comparison(OfTwo):
    """What ONNX has truth values for: 1 for true, 0 for false."""

    captures = ()
    kernels = ("COMBINE",)

    def capture(self, call: Call) -> int:
        raise UnsupportedError  # a sum of two truth values of torch is one too


class Equal(Comparison):
    name, code = "equal", 51

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return np.equal(inputs[0], inputs[1]).astype(np.float32)

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda one, other: (one == other).to(torch.float32)


class Greater(Comparison):
    name, code = "greater", 52

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return np.greater(inputs[0], inputs[1]).astype(np.float32)

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda one, other: (one > other).to(torch.float32)


class Keep(Comparison):
    """The second number where the first is not 0, and else 0, whatever the second is."""

    name, code = "keep", 53

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        out: Array = np.where(inputs[0] != 0, inputs[1], np.float32(0))
        return out

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda one, other: torch.where(one != 0, other, 0.0)


class Prelu(Operation):
    """Below zero times a weight: one for each channel, or one for all."""

    name, code, weights = "prelu", 49, 1
    captures = ("aten.prelu.default",)
    kernels = ("COMBINE",)
    examples = (Example((3, 5, 7), weights=((3,),)), Example((3, 5), weights=((1,),)))

    def capture(self, call: Call) -> int:
        return call.layer("prelu", (), call.args["weight"])

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        weight = given[0]
        fits = weight is not None and weight.shape in ((1,), inputs[0][:1])
        need(fits, "weights of another size")
        return inputs[0]

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        assert given[0] is not None
        return np.where(inputs[0] > 0, inputs[0], inputs[0] * _by_channel(given[0], shape))

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return torch.nn.functional.prelu

    def emit(self, program: Program, layer: FusedLayer) -> None:
        shape = program.shapes[layer.out]
        weight = _by_channel(layer.weight, shape)
        source, out = program.rows(layer.inputs[0], layer), program.out(layer)
        axes, other = _axes(shape, shape, weight.shape), program.numbers(weight)
        sizes = [COMBINATIONS.index("prelu"), len(axes), out.size]
        program.add("COMBINE", layer, source, out, other=other, sizes=sizes, data=(axes,))


def _by_channel(weight: Array, shape: Shape) -> Array:
    return weight.reshape(-1, *[1] * (len(shape) - 1))


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
        inputs = tuple(aligned(call, tensor) for tensor in call.args["tensors"])
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


OPERATIONS = (
    *(Add(), Mul(), Sub(), Div(), Maximum(), Minimum(), Prelu(), Cat()),
    *(Equal(), Greater(), Keep()),
)
