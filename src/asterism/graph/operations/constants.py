"""Weights as values of a network, and weights that are computed from weights."""

from __future__ import annotations

import math
from abc import abstractmethod
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
from asterism.graph.stages import Array, Call, FusedLayer, Given, Mask, NodeLike, Program, Shape


class Constant(Operation):
    """The same numbers for every example: of its input only the size of the batch counts."""

    kernels = ("COPY_CHUNKS",)  # where it is the network's result; else it is read where it lies

    @abstractmethod
    def of(self, node: NodeLike, given: Given) -> Array:
        """The numbers."""

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return np.broadcast_to(self.of(node, given), (len(inputs[0]), *shape))

    def emit(self, program: Program, layer: FusedLayer) -> None:
        program.constant(layer, self.of(layer.node, layer.weights))

    def read(self, layer: FusedLayer, needed: Mask, shape: Shape) -> Mask:
        return np.broadcast_to(np.False_, shape)


class Weight(Constant):
    """A weight as it is."""

    name, code, weights = "weight", 23, 1
    captures = ("aten.expand_as.default",)
    examples = (Example((3,), weights=((5, 7),)),)

    def capture(self, call: Call) -> int:
        return expanded(call)

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        need(given[0] is not None, "its weight is missing")
        assert given[0] is not None
        need(given[0].ndim <= 7, "its weight has too many dimensions")
        return given[0].shape

    def of(self, node: NodeLike, given: Given) -> Array:
        assert given[0] is not None
        return given[0]

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return spread


class WeightNorm(Constant):
    """A weight by its direction and its lengths: all that has one index in `dim` has one length."""

    name, code, weights = "weight_norm", 24, 2
    defaults = settings(dim=0)
    captures = ("aten._weight_norm.default",)
    examples = (Example((3,), {"dim": 1}, ((5, 7), (1, 7))), Example((3,), (), ((4, 9), (4, 1))))

    def capture(self, call: Call) -> int:
        direction, length = call.args["v"], call.args["g"]
        return call.constant("weight_norm", {"dim": call.args["dim"]}, direction, length)

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        direction, length = given
        need(direction is not None and length is not None, "its weights are missing")
        assert direction is not None
        assert length is not None
        dim = node["dim"]
        need(0 <= dim < direction.ndim <= 7, "its dimension")
        lengths = tuple(size if axis == dim else 1 for axis, size in enumerate(direction.shape))
        need(length.shape == lengths, "weights of another size")
        return direction.shape

    def of(self, node: NodeLike, given: Given) -> Array:
        direction, length = given
        assert direction is not None
        assert length is not None
        others = tuple(axis for axis in range(direction.ndim) if axis != node["dim"])
        norm = np.sqrt((direction.astype(np.float64) ** 2).sum(others, keepdims=True))
        with np.errstate(invalid="ignore", divide="ignore"):  # without a direction: as torch
            out: Array = (direction * (length / norm)).astype(np.float32)
        return out

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        norm = torch._weight_norm
        return lambda x, direction, length: spread(x, norm(direction, length, node["dim"]))


def spread(x: Any, weight: Any) -> Any:
    """A tensor once for each example of a batch, in a form that can be traced."""
    return weight.expand_as(x.new_zeros((x.shape[0], *weight.shape)))


def expanded(call: Call) -> int:
    """A tensor that is spread, over the batch as a class token is, or over other dimensions."""
    value, sizes = aligned(call, call.args["self"]), call.sizes
    shape = call.shape_of(call.args["self"])
    if len(shape) == len(sizes) + 1:
        shape = shape[1:]
    full = (1,) * (len(sizes) - len(shape)) + shape
    return value if full == sizes else call.add("expand", (value,), sizes)


def aligned(call: Call, argument: Any) -> int:
    """The number of a value as one with as many dimensions as the result of `call`.

    A weight has no batch: it counts from the last dimension, as torch aligns it.
    """
    rank, shape = len(call.shape), call.shape_of(argument)
    value = call.value(argument)
    if call.batched(argument):
        if len(shape) != rank:
            raise UnsupportedError
        return value
    full = (1,) * (rank - len(shape)) + shape
    if full[0] != 1 or len(full) > rank:
        raise UnsupportedError
    return value if full[1:] == shape else call.add("reshape", (value,), full[1:])


def is_number(argument: Any) -> bool:
    return isinstance(argument, int | float) and math.isfinite(argument)


OPERATIONS = (Weight(), WeightNorm())
