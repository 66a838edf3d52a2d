"""What a network computes from no input: the arithmetic of shapes above all, by numpy.

An operation of constants that is not in the table stays one that the graph has not. What makes more
numbers than it is given asks the budget first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asterism.graph.onnx.calls import OnnxCall
from asterism.graph.onnx.reading import Constant, plain
from asterism.graph.operations.operation import UnsupportedError

Folded = Constant | list[Constant]


def folded(call: OnnxCall) -> Folded:
    """The results of a node that has no input but numbers."""
    if call.op not in FOLDS:
        raise UnsupportedError("of constants")
    with np.errstate(all="ignore"):
        found = FOLDS[call.op](call)
    if isinstance(found, list):
        return [_counted(call, each) for each in found]
    return _counted(call, found)


def _counted(call: OnnxCall, found: Any) -> Constant:
    array = plain(np.asarray(found))
    call.budget.take(array.size)
    return array


def _one_by_one(function: Callable[..., Any]) -> Callable[[OnnxCall], Folded]:
    """A function of numbers in the same place, of as many inputs as there are."""

    def fold(call: OnnxCall) -> Folded:
        arrays = [call.array(place) for place in range(call.count)]
        call.budget.take(math.prod(np.broadcast_shapes(*(array.shape for array in arrays))))
        found = arrays[0]
        if len(arrays) == 1:
            return np.asarray(function(found))
        for other in arrays[1:]:
            found = np.asarray(function(found, other))
        return found

    return fold


def _div(one: Constant, other: Constant) -> Constant:
    if one.dtype.kind == "i" == other.dtype.kind:  # whole numbers are cut off towards zero
        return np.asarray(np.sign(one) * np.sign(other) * (np.abs(one) // np.abs(other)))
    return np.asarray(one / other)


def _power(one: Constant, other: Constant) -> Constant:
    return np.asarray(np.power(one.astype(np.float64), other)).astype(one.dtype)


def _cast(call: OnnxCall) -> Folded:
    array, kind = call.array(0), kind_of(call.attr("to", 1))
    return array.astype({"f": np.float32, "i": np.int64, "b": np.bool_}[kind])


def kind_of(code: int) -> str:
    """f, i or b, for ONNX's number of a type."""
    from onnx import TensorProto

    if code in (TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        raise UnsupportedError("of text or complex numbers")
    if code == TensorProto.BOOL:
        return "b"
    floats = ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16")
    return "f" if code in [getattr(TensorProto, name) for name in floats] else "i"


def _constant(call: OnnxCall) -> Folded:
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        found = call.attr(name)
        if found is not None:
            return np.asarray(found)
    raise UnsupportedError


def _filled(call: OnnxCall) -> Folded:
    shape = call.array(0).reshape(-1).tolist()
    call.budget.take(math.prod(shape))
    return np.full(shape, np.asarray(call.attr("value", np.float32(0))).reshape(()))


def _expand(call: OnnxCall) -> Folded:
    array = call.array(0)
    shape = np.broadcast_shapes(array.shape, tuple(call.array(1).reshape(-1).tolist()))
    call.budget.take(math.prod(shape))
    return np.broadcast_to(array, shape)


def _tile(call: OnnxCall) -> Folded:
    array, repeats = call.array(0), call.array(1).reshape(-1).tolist()
    call.budget.take(array.size * math.prod(repeats))
    return np.tile(array, repeats)


def _range(call: OnnxCall) -> Folded:
    start, limit, delta = (call.array(place).reshape(()).item() for place in range(3))
    call.budget.take(max(0, math.ceil((limit - start) / delta)))
    return np.arange(start, limit, delta)


def _reshape(call: OnnxCall) -> Folded:
    array = call.array(0)
    return array.reshape(wanted_shape(array.shape, call.array(1), call.attr("allowzero", 0)))


def wanted_shape(shape: Sequence[int], wanted: Constant, zeros: int = 0) -> tuple[int, ...]:
    """The shape that a reshape asks for: 0 is the old size, −1 what is left.

    >>> wanted_shape((4, 6, 5), np.array([0, -1]))
    (4, 30)
    """
    sizes = [int(size) for size in wanted.reshape(-1)]
    sizes = [shape[i] if size == 0 and not zeros else size for i, size in enumerate(sizes)]
    known = math.prod(size for size in sizes if size != -1)
    return tuple(math.prod(shape) // max(1, known) if size == -1 else size for size in sizes)


def _squeeze(call: OnnxCall) -> Folded:
    array, axes = call.array(0), call.integers("axes", 1)
    return array.squeeze() if axes is None else array.squeeze(tuple(axes))


def _unsqueeze(call: OnnxCall) -> Folded:
    return np.expand_dims(call.array(0), tuple(call.integers("axes", 1) or ()))


def _flatten(call: OnnxCall) -> Folded:
    array, axis = call.array(0), call.attr("axis", 1)
    return array.reshape(math.prod(array.shape[:axis]), -1)


def _concat(call: OnnxCall) -> Folded:
    arrays = [call.array(place) for place in range(call.count)]
    call.budget.take(sum(array.size for array in arrays))
    return np.concatenate(arrays, call.attr("axis", 0))


def _slice(call: OnnxCall) -> Folded:
    array = call.array(0)
    return array[tuple(slices(call, array.shape))]


def slices(call: OnnxCall, shape: Sequence[int]) -> list[slice]:
    """What is asked for of each dimension."""
    found = [slice(None)] * len(shape)
    starts, ends = call.integers("starts", 1), call.integers("ends", 2)
    if starts is None or ends is None:
        raise UnsupportedError
    axes = call.integers("axes", 3) or list(range(len(starts)))
    steps = call.integers("steps", 4) or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        backwards = step < 0 and end < -shape[axis]  # down to the first, and it included
        found[axis] = slice(start, None if backwards else end, step)
    return found


def _gather(call: OnnxCall) -> Folded:
    array, indices, axis = call.array(0), call.array(1), call.attr("axis", 0)
    call.budget.take(indices.size * (array.size // max(1, array.shape[axis])))
    return array.take(indices, axis)


def parts(call: OnnxCall, size: int) -> list[int]:
    """The sizes of the parts of a split along a dimension."""
    found = call.integers("split", 1)
    if found is not None:
        return found
    count = len(call.node.output)
    each = -(-size // count)
    return [min(each, size - each * place) for place in range(count)]


def _split(call: OnnxCall) -> Folded:
    array, axis = call.array(0), call.attr("axis", 0)
    ends = np.cumsum(parts(call, array.shape[axis]))
    return list(np.split(array, ends[:-1], axis))


def _reduced(function: Callable[..., Any]) -> Callable[[OnnxCall], Folded]:
    def fold(call: OnnxCall) -> Folded:
        axes = call.integers("axes", 1)
        keep = bool(call.attr("keepdims", 1))
        return np.asarray(function(call.array(0), axis=axes and tuple(axes), keepdims=keep))

    return fold


def _where(call: OnnxCall) -> Folded:
    arrays = [call.array(place) for place in range(3)]
    call.budget.take(math.prod(np.broadcast_shapes(*(array.shape for array in arrays))))
    return np.where(arrays[0].astype(bool), *arrays[1:])


def _trilu(call: OnnxCall) -> Folded:
    k = int(call.number(1, 0))
    return np.triu(call.array(0), k) if call.attr("upper", 1) else np.tril(call.array(0), k)


def _matmul(call: OnnxCall) -> Folded:
    one, other = call.array(0), call.array(1)
    call.budget.take(one.size * other.shape[-1] + other.size)
    return one @ other


def _dequantized(call: OnnxCall) -> Folded:
    """Weights that are kept as whole numbers: of all, or of each index along an axis."""
    array, scale = call.array(0), call.array(1)
    zero = call.array(2) if call.has(2) else np.int64(0)
    if scale.ndim == 1 and scale.size > 1:
        spread = [1] * array.ndim
        spread[call.attr("axis", 1)] = -1
        scale, zero = scale.reshape(spread), np.reshape(zero, spread) if np.ndim(zero) else zero
    if scale.ndim > 1 and scale.ndim != array.ndim:
        raise UnsupportedError("in blocks")
    return (array - zero) * scale


def _shape(call: OnnxCall) -> Folded:
    return shape_part(call, call.array(0).shape)


def shape_part(call: OnnxCall, shape: Sequence[int]) -> Constant:
    """A shape, or the part of it that is asked for, as numbers."""
    return np.array(shape[call.attr("start", 0) : call.attr("end")], np.int64)


_ONE_BY_ONE: dict[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Div": _div,
    "Equal": np.equal,
    "Exp": np.exp,
    "Floor": np.floor,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "IsNaN": np.isnan,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Log": np.log,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mod": np.mod,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Pow": _power,
    "Reciprocal": np.reciprocal,
    "Round": np.round,
    "Sin": np.sin,
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Sum": np.add,
    "Tanh": np.tanh,
}
_REDUCED: dict[str, Callable[..., Any]] = {
    "L1": lambda x, **how: np.abs(x).sum(**how),
    "L2": lambda x, **how: np.sqrt(np.square(x).sum(**how)),
    "SumSquare": lambda x, **how: np.square(x).sum(**how),
    "Max": np.max,
    "Mean": np.mean,
    "Min": np.min,
    "Prod": np.prod,
    "Sum": np.sum,
}
FOLDS: dict[str, Callable[[OnnxCall], Folded]] = {
    "Cast": _cast,
    "Concat": _concat,
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "DequantizeLinear": _dequantized,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": lambda call: call.array(0),
    "MatMul": _matmul,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": lambda call: np.asarray(call.array(0).size),
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": lambda call: call.array(0).transpose(call.attr("perm")),
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    **{name: _one_by_one(function) for name, function in _ONE_BY_ONE.items()},
    **{f"Reduce{name}": _reduced(function) for name, function in _REDUCED.items()},
}
