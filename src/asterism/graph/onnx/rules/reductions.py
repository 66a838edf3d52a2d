"""Along dimensions: sums, means, the largest; softmax; norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from asterism.graph.onnx.calls import OnnxCall, Result
from asterism.graph.onnx.rules.elementwise import scaled
from asterism.graph.onnx.values import Value
from asterism.graph.operations.operation import UnsupportedError

# ---------------------------------------------------------------------- reductions


def _reduce(call: OnnxCall) -> Result:
    value, kind = call.value(), call.op.removeprefix("Reduce")
    axes = call.integers("axes", 1)
    if not axes and call.attr("noop_with_empty_axes", 0):
        return value
    rank = len(value.shape)
    chosen = sorted({axis % rank for axis in axes} if axes else range(rank))
    found = _REDUCTIONS[kind](call, value, chosen)
    if call.attr("keepdims", 1):
        return found
    return call.reshaped(found, tuple(n for i, n in enumerate(found.shape) if i not in chosen))


def _mean(call: OnnxCall, value: Value, axes: Sequence[int]) -> Value:
    dims = sorted(value.dim(axis) for axis in axes)
    for first in (dim for dim in dims if dim - 1 not in dims):
        count = next(n for n in range(1, 99) if first + n not in dims)
        value = call.layer("mean", value, {"dim": first, "count": count})
    return value


def _sum(call: OnnxCall, value: Value, axes: Sequence[int]) -> Value:
    terms = math.prod(value.shape[axis] for axis in axes)
    return scaled(call, _mean(call, value, axes), float(terms), 0.0)


def _max(call: OnnxCall, value: Value, axes: Sequence[int]) -> Value:
    """The dimensions last, and then as the largest of one window."""
    dims, sizes = [value.dim(axis) for axis in axes], call.layers.shapes[value.number]
    others = [dim for dim in range(1, len(sizes) + 1) if dim not in dims]
    number = call.add("permute", (value.number,), (*others, *dims))
    outer = math.prod(sizes[dim - 1] for dim in others)
    flat = (outer, math.prod(sizes[dim - 1] for dim in dims))
    number = call.add("adaptive_max_pool", (call.add("reshape", (number,), flat),))
    left = tuple(1 if dim in dims else size for dim, size in enumerate(sizes, 1))
    return call.like(value, call.add("reshape", (number,), left))


def _min(call: OnnxCall, value: Value, axes: Sequence[int]) -> Value:
    return scaled(call, _max(call, scaled(call, value, -1.0, 0.0), axes), -1.0, 0.0)


def _squares(call: OnnxCall, value: Value, axes: Sequence[int]) -> Value:
    return _sum(call, call.layer("power", value, {"exponent": 2.0}), axes)


def _length(call: OnnxCall, value: Value, axes: Sequence[int]) -> Value:
    return call.layer("power", _squares(call, value, axes), {"exponent": 0.5})


def _absolutes(call: OnnxCall, value: Value, axes: Sequence[int]) -> Value:
    return _sum(call, call.layer("abs", value), axes)


_REDUCTIONS: dict[str, Callable[[OnnxCall, Value, Sequence[int]], Value]] = {
    "Mean": _mean,
    "Sum": _sum,
    "Max": _max,
    "Min": _min,
    "SumSquare": _squares,
    "L2": _length,
    "L1": _absolutes,
}

# ---------------------------------------------------------------------- softmax and norms


def _softmax(call: OnnxCall) -> Result:
    value, old = call.value(), call.opset < 13
    op, axis = (
        "softmax" if call.op == "Softmax" else "log_softmax",
        call.attr("axis", 1 - 2 * (not old)),
    )
    axis %= len(value.shape)
    if not old or axis == len(value.shape) - 1:
        rank = len(call.layers.shapes[value.number])
        return call.layer(op, value, {"dim": value.dim(axis) - 1 - rank})
    # In old versions over all dimensions from the axis on.
    flat = call.reshaped(value, (*value.shape[:axis], math.prod(value.shape[axis:])))
    return call.reshaped(call.layer(op, flat, {"dim": -1}), value.shape)


def _batch_norm(call: OnnxCall) -> Result:
    if call.attr("training_mode", 0):
        raise UnsupportedError("in training")
    weights = [call.weight(place) for place in range(1, 5)]
    return call.layer("batch_norm", call.plain(), {"eps": call.attr("epsilon", 1e-5)}, *weights)


def _group_norm(call: OnnxCall) -> Result:
    value, scale = call.plain(), call.array(1)
    groups = call.attr("num_groups", value.shape[1])
    if scale.shape != value.shape[1:2]:
        raise UnsupportedError("with a weight for each group")
    settings = {"groups": groups, "eps": call.attr("epsilon", 1e-5)}
    return call.layer("group_norm", value, settings, call.weight(1), call.weight(2))


def _layer_norm(call: OnnxCall) -> Result:
    value = call.value()
    axis, rank = call.attr("axis", -1) % len(value.shape), len(value.shape)
    for each in range(axis, rank):
        value.dim(each)  # which refuses the batch
    if value.axis > axis:
        raise UnsupportedError("along the batch")
    settings = {"rank": rank - axis, "eps": call.attr("epsilon", 1e-5)}
    op = "layer_norm" if call.op == "LayerNormalization" else "rms_norm"
    return call.layer(op, value, settings, *[call.weight(n) for n in range(1, call.count)])


RULES: dict[str, Callable[[OnnxCall], Result]] = {
    **{f"Reduce{name}": _reduce for name in _REDUCTIONS},
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    "BatchNormalization": _batch_norm,
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization"), _group_norm),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _layer_norm),
}
