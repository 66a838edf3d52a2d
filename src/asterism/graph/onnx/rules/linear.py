"""Matrices times values, and convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from asterism.graph.onnx.calls import OnnxCall, Result
from asterism.graph.onnx.reading import Constant
from asterism.graph.onnx.rules.shaping import padded_value, part, transposed, without
from asterism.graph.onnx.values import Sizes, Value, combined, padded
from asterism.graph.operations.operation import UnsupportedError
from asterism.graph.stages import Number

AXES = "dhw"

# ---------------------------------------------------------------------- matrices


def _gemm(call: OnnxCall) -> Result:
    value, matrix = call.value(), call.array(1)
    if call.attr("transA", 0):
        raise UnsupportedError("of a transposed value")
    turned = matrix if call.attr("transB", 0) else matrix.T
    alpha, beta, bias = call.attr("alpha", 1.0), call.attr("beta", 1.0), call.floats(2)
    weight = call.weight(1, turned if alpha == 1 else turned * np.float32(alpha))
    if bias is None:
        return _linear(call, value, weight)
    if bias.size not in (1, len(turned)):
        raise UnsupportedError("with a bias for each example")
    bias = np.broadcast_to(bias.reshape(-1) * np.float32(beta), (len(turned),))
    return _linear(call, value, weight, call.weight(2, bias))


def _linear(call: OnnxCall, value: Value, *weights: int | None) -> Value:
    """A matrix times the last dimension."""
    value.dim(-1)  # which refuses the batch
    return call.layer("linear", value, (), *weights)


def _matmul(call: OnnxCall) -> Result:
    one, other = call.operand(0), call.operand(1)
    if isinstance(one, Value) and isinstance(other, Value):
        return _product(call, one, other)
    if isinstance(one, Value) and not isinstance(other, Value):
        return _by_matrix(call, one, other)
    assert isinstance(other, Value)
    return _matrix_by(call, call.array(0), other)


def _by_matrix(call: OnnxCall, value: Value, matrix: Constant) -> Value:
    """A value times numbers."""
    if matrix.ndim == 1:
        return without(call, _linear(call, value, call.weight(1, matrix[None])), -1)
    if math.prod(matrix.shape[:-2]) > 1:
        return _product(call, value, _as_factor(call, 1, matrix, value))
    flat = matrix.reshape(matrix.shape[-2:])
    found = _looked_up(call, value, flat)
    return _linear(call, value, call.weight(1, flat.T)) if found is None else found


def _looked_up(call: OnnxCall, value: Value, matrix: Constant) -> Value | None:
    """A matrix times ids that are compared with all ids there are: rows of the matrix."""
    before = call.layers.maker(value.number)
    if before is None or before.op != "equal" or value.dim(-1) != len(value.sizes):
        return None
    ids, every = before.inputs
    numbers = call.layers.constant(every)
    of_ids = ids < len(call.layers.inputs) or call.layers.shapes[ids][-1:] == (1,)
    if numbers is None or not of_ids or not np.array_equal(numbers.ravel(), range(len(matrix))):
        return None
    ids = call.add("reshape", (ids,), value.sizes[:-1])
    table = call.weight(1, matrix)
    return call.like(value, call.add("embedding", (ids,), (), table))


def _matrix_by(call: OnnxCall, matrix: Constant, value: Value) -> Value:
    """Numbers times a value: as the turned value times the turned numbers."""
    rank = len(value.shape)
    if matrix.ndim < 2 or rank < 2:
        raise UnsupportedError("of a vector")
    if math.prod(matrix.shape[:-2]) > 1:
        return _product(call, _as_factor(call, 0, matrix, value), value)
    order = [*range(rank - 2), rank - 1, rank - 2]
    turned = transposed(call, value, order)
    weight = call.weight(0, matrix.reshape(matrix.shape[-2:]))
    found = _linear(call, turned, weight)
    shape = padded(found.shape, max(rank, matrix.ndim))
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    return transposed(call, call.reshaped(found, shape), order)


def _as_factor(call: OnnxCall, place: int, matrix: Constant, value: Value) -> Value:
    """Several matrices as a value, the same for each example."""
    rank = max(matrix.ndim, len(value.shape))
    axis = value.axis + rank - len(value.shape)
    shape = list(padded(matrix.shape, rank))
    if shape[axis] != 1 or value.inner:
        raise UnsupportedError("along the batch")
    sizes = (*shape[:axis], *shape[axis + 1 :])
    shape[axis] = value.shape[value.axis]
    return call.spread(place, matrix.reshape(sizes), tuple(shape))


def _product(call: OnnxCall, one: Value, other: Value) -> Value:
    """Two values, matrix by matrix."""
    rank = max(len(one.shape), len(other.shape))
    pair = [call.reshaped(value, padded(value.shape, rank)) for value in (one, other)]
    if pair[0].batch != pair[1].batch or pair[0].axis >= rank - 2:
        raise UnsupportedError("along the batch")
    leading = combined([value.shape[:-2] for value in pair])
    numbers = [_expanded(call, value, leading + value.shape[-2:]) for value in pair]
    return call.like(pair[0], call.add("matmul", (numbers[0], numbers[1])), "f")


def _expanded(call: OnnxCall, value: Value, shape: Sizes) -> int:
    if value.shape == shape:
        return value.number
    return call.add("expand", (value.number,), value._replace(shape=shape).sizes)


# ---------------------------------------------------------------------- windows


class Window:
    """How a kernel moves over the dimensions after batch and channels.

    strides, dilations  of each dimension
    pads                before and after each dimension
    """

    def __init__(self, call: OnnxCall, sizes: Sequence[int], kernel: Sequence[int]) -> None:
        rank = len(kernel)
        self.strides = self._each(call, "strides", rank)
        self.dilations = self._each(call, "dilations", rank)
        pads = call.attr("pads") or [0] * 2 * rank
        self.pads = [(int(pads[i]), int(pads[i + rank])) for i in range(rank)]
        mode = call.attr("auto_pad", "NOTSET")
        if mode.startswith("SAME"):
            each = zip(sizes, kernel, self.strides, self.dilations, strict=True)
            self.pads = [_same(*axis, mode == "SAME_LOWER") for axis in each]
        elif mode == "VALID":
            self.pads = [(0, 0)] * rank

    @staticmethod
    def _each(call: OnnxCall, name: str, rank: int) -> list[int]:
        found = [int(number) for number in call.attr(name) or [1] * rank]
        if len(found) != rank:
            raise UnsupportedError(f"with {len(found)} {name}")
        return found

    def settings(self, padding: Sequence[int], **more: Sequence[int]) -> dict[str, Number]:
        """By our names: of height and width, and depth."""
        named = {"padding": padding, "stride": self.strides, **more}
        axes = AXES[-len(self.strides) :]
        return {
            f"{name}_{axis}": number
            for name, numbers in named.items()
            for axis, number in zip(axes, numbers, strict=True)
        }


def _same(size: int, kernel: int, stride: int, dilation: int, lower: bool) -> tuple[int, int]:
    """What is put around a dimension whose result is as large as it, but for the stride."""
    total = (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size
    half = max(0, total) // 2
    return (max(0, total) - half, half) if lower else (half, max(0, total) - half)


def evened(
    call: OnnxCall, value: Value, pads: Sequence[tuple[int, int]], most: Sequence[int], fill: float
) -> tuple[Value, list[int]]:
    """A value with what is more on one side put there, and what is left for both sides.

    pads  before and after each dimension
    most  that a layer may put on both sides itself
    fill  the number that is put there
    """
    left = []
    for axis, ((before, after), limit) in enumerate(zip(pads, most, strict=True), 2):
        both = min(before, after)
        both = both if both <= limit else 0
        value = padded_value(call, value, axis, before - both, after - both, fill)
        left.append(both)
    return value, left


def _conv(call: OnnxCall) -> Result:
    value, kernel = call.plain(), call.array(1)
    rank = kernel.ndim - 2
    if rank != len(value.shape) - 2 or not 1 <= rank <= 3:
        raise UnsupportedError(f"of {rank} dimensions")
    window = Window(call, value.shape[2:], kernel.shape[2:])
    value, padding = evened(call, value, window.pads, [2**30] * rank, 0.0)
    settings = window.settings(padding, dilation=window.dilations)
    settings["groups"] = call.attr("group", 1)
    if rank == 2 and (value.shape[3], kernel.shape[3], padding[1]) == (1, 1, 0):
        return _of_column(call, value, settings)
    op = "conv3d" if rank == 3 else "conv"
    return call.layer(op, value, settings, call.weight(1), call.weight(2))


def _of_column(call: OnnxCall, value: Value, settings: dict[str, Number]) -> Value:
    """An image of one column as a signal, as which the kernels have it side by side."""
    names = ("padding", "stride", "dilation")
    along = {f"{name}_w": settings[f"{name}_h"] for name in names}
    weights = call.weight(1, call.array(1)[..., 0]), call.weight(2)
    signal = call.reshaped(value, value.shape[:3])
    found = call.layer("conv", signal, {**along, "groups": settings["groups"]}, *weights)
    return call.reshaped(found, (*found.shape, 1))


def _conv_transpose(call: OnnxCall) -> Result:
    value, kernel = call.plain(), call.array(1)
    rank = kernel.ndim - 2
    if call.attr("output_shape") or call.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise UnsupportedError("to a given shape")
    window = Window(call, value.shape[2:], kernel.shape[2:])
    both = [min(pads) for pads in window.pads]
    more = call.attr("output_padding") or [0] * rank
    settings = window.settings(both, dilation=window.dilations, output_padding=more)
    settings["groups"] = call.attr("group", 1)
    value = call.layer("conv_transpose", value, settings, call.weight(1), call.weight(2))
    for axis, (pads, even) in enumerate(zip(window.pads, both, strict=True), 2):
        before, after = pads[0] - even, pads[1] - even
        value = part(call, value, axis, before, value.shape[axis] - before - after)
    return value


RULES: dict[str, Callable[[OnnxCall], Result]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
