"""Batch norm and layer norm."""

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


class BatchNorm(Operation):
    """Each channel by its running mean and variance, as in evaluation."""

    name, code = "batch_norm", 7
    defaults = settings(eps=1e-5)
    weights = 4
    captures = ("aten.batch_norm.default",)
    kernels = ("SCALE",)
    examples = (
        Example((3, 5, 7), {"eps": 1e-3}, ((3,), (3,), (3,), (3,))),
        Example((6,), weights=((6,), (6,), (6,), (6,))),
        Example((2, 2, 1, 2, 3), weights=((2,), (2,), (2,), (2,))),
    )

    def capture(self, call: Call) -> int:
        if call.args["training"] or call.args["running_mean"] is None:
            raise UnsupportedError
        names = ("weight", "bias", "running_mean", "running_var")
        weights = (call.args[name] for name in names)
        return call.layer("batch_norm", {"eps": call.args["eps"]}, *weights)

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        need(bool(inputs[0]), "channels are needed")
        need(given[2] is not None and given[3] is not None, "mean or variance is missing")
        need(all(w is None or w.shape == inputs[0][:1] for w in given), "weights of another size")
        return inputs[0]

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        scale, shift = scale_and_shift(node, given)
        spread = (-1, *[1] * (len(shape) - 1))
        return inputs[0] * scale.reshape(spread) + shift.reshape(spread)

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        eps, rank = float(node.number("eps")), len(shapes[0])
        if rank > 4:  # torch's modules go up to three dimensions and the channels
            norm_of = torch.nn.functional.batch_norm
            return lambda x, weight, bias, *of: norm_of(x, *of, weight, bias, eps=eps)
        weight, bias, mean, variance = given
        make = getattr(torch.nn, f"BatchNorm{max(1, rank - 1)}d")
        norm = make(len(mean), eps=eps, device="meta")
        norm.running_mean, norm.running_var = mean.data, variance.data
        norm.num_batches_tracked = None
        # What a network lacks is what changes nothing: then the module is one that `compact` knows.
        norm.weight = torch.nn.Parameter(torch.ones_like(variance)) if weight is None else weight
        norm.bias = torch.nn.Parameter(torch.zeros_like(mean)) if bias is None else bias
        return norm.requires_grad_(False)

    def emit(self, program: Program, layer: FusedLayer) -> None:
        data = scale_and_shift(layer.node, layer.weights)
        source, channels = program.rows(layer.inputs[0], layer), program.shapes[layer.out][0]
        sizes = [channels, program.size(layer.out) // channels]
        program.add("SCALE", layer, source, program.out(layer), sizes=sizes, data=data)


def scale_and_shift(node: NodeLike, given: Given) -> tuple[Array, Array]:
    """A batch norm as y = x·scale + shift, computed in float64."""
    weight, bias, mean, variance = given
    assert mean is not None
    assert variance is not None
    scale = 1 / np.sqrt(variance.astype(np.float64) + node.number("eps"))
    scale = scale if weight is None else scale * weight
    shift = (0 if bias is None else bias) - mean * scale
    return scale.astype(np.float32), np.asarray(shift, np.float32)


def folded(layer: FusedLayer, node: NodeLike, given: Given) -> FusedLayer:
    """A layer with weights, and the batch norm after it in these weights."""
    scale, shift = scale_and_shift(node, given)
    weight = layer.weight * scale.reshape(-1, *[1] * (layer.weight.ndim - 1))
    return layer._replace(weights=[weight, layer.bias * scale + shift])


class LayerNorm(Operation):
    """Over the last `rank` dimensions of each example."""

    name, code = "layer_norm", 8
    defaults = settings(rank=1, eps=1e-5)
    weights = 2
    captures = ("aten.layer_norm.default",)
    kernels = ("LAYER_NORM",)
    examples = (
        Example((3, 5, 7), {"rank": 2}, ((5, 7), (5, 7))),
        Example((3, 8), {"eps": 1e-3}, ((8,), None)),
        Example((8,)),
    )

    def capture(self, call: Call) -> int:
        settings = {"rank": len(call.args["normalized_shape"]), "eps": call.args["eps"]}
        return call.layer("layer_norm", settings, call.args["weight"], call.args["bias"])

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        rank = node["rank"]
        need(0 < rank <= len(inputs[0]), "its rank")
        sizes = inputs[0][-rank:]
        need(all(w is None or w.shape == sizes for w in given), "weights of another size")
        return inputs[0]

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        axes = tuple(range(-node["rank"], 0))
        x = inputs[0].astype(np.float64)
        x = x - x.mean(axes, keepdims=True)
        x = x / np.sqrt((x * x).mean(axes, keepdims=True) + node.number("eps"))
        x = x if given[0] is None else x * given[0]
        out: Array = x if given[1] is None else x + given[1]
        return out

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        sizes, eps = list(shapes[0][-node["rank"] :]), float(node.number("eps"))
        return lambda x, weight, bias: torch.nn.functional.layer_norm(x, sizes, weight, bias, eps)

    def emit(self, program: Program, layer: FusedLayer) -> None:
        length = math.prod(program.shapes[layer.out][-layer.node["rank"] :])
        plain = (np.ones(length, np.float32), np.zeros(length, np.float32))
        data = tuple(d if w is None else w for w, d in zip(layer.weights, plain, strict=True))
        sizes = [program.size(layer.out) // length, length]
        source, eps = program.rows(layer.inputs[0], layer), float(layer.node.number("eps"))
        out = program.out(layer)
        program.add("LAYER_NORM", layer, source, out, sizes=sizes, data=data, a=eps)


OPERATIONS = (BatchNorm(), LayerNorm())
