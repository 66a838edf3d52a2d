"""The same numbers in another shape or order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.graph.operations.operation import (
    Example,
    Operation,
    UnsupportedError,
    need,
    settings,
)
from asterism.graph.stages import Array, Call, FusedLayer, Given, NodeLike, Program, Shape


class View(Operation):
    """The same numbers in the same order: nothing to compute."""

    view = True

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return inputs[0].reshape(len(inputs[0]), *shape)


class Flatten(View):
    """The dimensions from `start` to `end` as one; the batch is dimension 0."""

    name, code = "flatten", 20
    defaults = settings(start=1, end=-1)
    captures = ("aten.flatten.using_ints",)
    examples = (Example((3, 5, 7)), Example((3, 5, 7), {"end": 2}))

    def capture(self, call: Call) -> int:
        rank = len(call.shape_of(call.args["self"]))
        start, end = call.args["start_dim"] % rank, call.args["end_dim"] % rank
        if start == 0:
            raise UnsupportedError
        return call.layer("flatten", {"start": start, "end": -1 if end == rank - 1 else end})

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        shape, start = inputs[0], node["start"] - 1
        end = len(shape) if node["end"] == -1 else node["end"]
        need(0 <= start < end <= len(shape), "its dimensions")
        return (*shape[:start], math.prod(shape[start:end]), *shape[end:])

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda x: x.flatten(node["start"], node["end"])


class Reshape(View):
    """Its settings are the new shape, without the batch; one size may be −1: what is left."""

    name, code, free = "reshape", 21, True
    captures = (
        *(f"aten.{name}.default" for name in ("view", "reshape", "unsqueeze")),
        "aten.unflatten.int",
        *(f"aten.squeeze.{form}" for form in ("default", "dim", "dims")),
    )
    examples = (Example((3, 5, 7), (15, 7)),)

    def capture(self, call: Call) -> int:
        return call.layer("reshape", call.sizes)

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        known = [size for size in node.sizes if size != -1]
        need(all(size >= 0 for size in known) and len(node.sizes) - len(known) < 2, "its sizes")
        total, each = math.prod(inputs[0]), math.prod(known)
        left = total // each if each else 0
        sizes = tuple(left if size == -1 else size for size in node.sizes)
        need(math.prod(sizes) == total, f"sizes {node.sizes}")
        return sizes

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        sizes = self.shape(node, shapes, ())
        return lambda x: x.reshape(-1, *sizes)


class Permute(Operation):
    """Its settings are the dimensions in their new order, counted from 1: the batch stays first."""

    name, code, free = "permute", 22, True
    captures = ("aten.permute.default", "aten.transpose.int")
    kernels = ("GATHER",)
    examples = (Example((3, 5, 7), (3, 1, 2)),)

    def capture(self, call: Call) -> int:
        rank = len(call.shape)
        order = [dim % rank for dim in call.args.get("dims", range(rank))]
        if "dims" not in call.args:
            one, other = call.args["dim0"] % rank, call.args["dim1"] % rank
            order[one], order[other] = order[other], order[one]
        if order[0] != 0:
            raise UnsupportedError
        return call.layer("permute", tuple(order[1:]))

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        fits = sorted(node.sizes) == list(range(1, len(inputs[0]) + 1))
        need(fits, f"dimensions {node.sizes}")
        return tuple(inputs[0][dim - 1] for dim in node.sizes)

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return inputs[0].transpose(0, *node.sizes)

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda x: x.permute(0, *node.sizes)

    def emit(self, program: Program, layer: FusedLayer) -> None:
        shape = program.seen(layer)
        places = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        moved = np.ascontiguousarray(places.transpose([dim - 1 for dim in layer.node.sizes]))
        source = program.rows(layer.inputs[0], layer)
        program.add("GATHER", layer, source, program.out(layer), sizes=[moved.size], data=(moved,))


OPERATIONS = (Flatten(), Reshape(), Permute())
