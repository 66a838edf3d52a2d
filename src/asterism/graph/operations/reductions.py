"""Along one or several dimensions: mean, softmax and its logarithm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.graph.operations.activations import scaled
from asterism.graph.operations.operation import (
    Example,
    Operation,
    UnsupportedError,
    need,
    settings,
)
from asterism.graph.stages import Array, Call, FusedLayer, Given, NodeLike, Program, Shape


class Mean(Operation):
    """Over `count` dimensions from `dim` on, which stay with the size 1; the batch is dimension 0.

    A mean over dimensions that are not neighbours is one mean after the other, and a sum is a mean
    times the number of its terms.
    """

    name, code = "mean", 32
    defaults = settings(dim=1, count=1)
    captures = ("aten.mean.dim", "aten.sum.dim_IntList")
    kernels = ("MEAN",)
    examples = (
        Example((3, 5, 7), {"dim": 2}),
        Example((3, 5, 7), {"dim": 1, "count": 2}),
        Example((3, 5, 7), {"dim": 3}),
    )

    def capture(self, call: Call) -> int:
        shape, args = call.shape_of(call.args["self"]), call.args
        dims = sorted(dim % len(shape) for dim in args["dim"] or range(len(shape)))
        if dims[0] == 0 or args["dtype"] is not None:
            raise UnsupportedError
        value, terms = call.value(args["self"]), 1
        for dim in dims:
            terms *= shape[dim]
        for first in (dim for dim in dims if dim - 1 not in dims):
            count = next(n for n in range(1, len(shape)) if first + n not in dims)
            value = call.add("mean", (value,), {"dim": first, "count": count})
        if "sum" in call.name:
            value = scaled(call, value, float(terms), 0.0)
        return value if args["keepdim"] else call.add("reshape", (value,), call.sizes)

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        first, count = node["dim"] - 1, node["count"]
        need(first >= 0 and 0 < count <= len(inputs[0]) - first, "its dimensions")
        return (*inputs[0][:first], *(1,) * count, *inputs[0][first + count :])

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        axes = tuple(range(node["dim"], node["dim"] + node["count"]))
        mean: Array = inputs[0].mean(axes, np.float64, keepdims=True)
        return mean

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        dims = list(range(node["dim"], node["dim"] + node["count"]))
        return lambda x: x.mean(dims, keepdim=True)

    def emit(self, program: Program, layer: FusedLayer) -> None:
        shape, first = program.seen(layer), layer.node["dim"] - 1
        last = first + layer.node["count"]
        sizes = [math.prod(part) for part in (shape[:first], shape[first:last], shape[last:])]
        image = (first, last, len(shape)) == (1, 3, 3)
        places = program.by_place(layer.inputs[0], layer) if image else None
        if places is not None:
            source, sizes = places, [1, sizes[1], sizes[0]]
        elif image:
            source, (pitch, plane, margin) = program.channels(layer.inputs[0], layer)
            if plane != sizes[1]:  # zeros among them
                sizes = [shape[0], (shape[1] - 1) * pitch + shape[2], 1, plane, margin, sizes[1]]
        else:
            source = program.rows(layer.inputs[0], layer)
        program.add("MEAN", layer, source, program.out(layer), sizes=sizes)


class Softmax(Operation):
    """Along a dimension that is counted from the end, as −1 for the last."""

    name, code = "softmax", 14
    defaults = settings(dim=-1)
    captures: tuple[str, ...] = ("aten.softmax.int",)
    kernels = ("SOFTMAX",)
    examples = (Example((3, 5, 7)), Example((3, 5, 7), {"dim": -2}))
    logarithm = False

    def capture(self, call: Call) -> int:
        dim = call.args["dim"] % len(call.shape)
        if dim == 0 or call.args["dtype"] is not None:
            raise UnsupportedError
        return call.layer(self.name, {"dim": dim - len(call.shape)})

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        need(-len(inputs[0]) <= node["dim"] < 0, "its dimension")
        return inputs[0]

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        x = inputs[0]
        if not x.size:  # of no numbers none is the largest
            return x
        x = x - x.max(node["dim"], keepdims=True)
        powers = np.exp(x)
        total = powers.sum(node["dim"], keepdims=True)
        out: Array = x - np.log(total) if self.logarithm else powers / total
        return out

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        if self.logarithm:
            return lambda x: x.log_softmax(node["dim"])
        return lambda x: x.softmax(node["dim"])

    def emit(self, program: Program, layer: FusedLayer) -> None:
        shape = program.shapes[layer.out]
        axis = layer.node["dim"] + len(shape)
        sizes = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
        source = program.rows(layer.inputs[0], layer)
        sizes.append(int(self.logarithm))
        program.add("SOFTMAX", layer, source, program.out(layer), sizes=sizes)


class LogSoftmax(Softmax):
    name, code = "log_softmax", 33
    captures = ("aten.log_softmax.int",)
    logarithm = True


OPERATIONS = (Mean(), Softmax(), LogSoftmax())
