"""The same numbers in another shape or order, and parts of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from asterism.graph.onnx.calls import OnnxCall, Result
from asterism.graph.onnx.folding import kind_of, parts, shape_part, slices, wanted_shape
from asterism.graph.onnx.reading import Constant
from asterism.graph.onnx.values import BATCH, Value, combined, padded
from asterism.graph.operations.operation import UnsupportedError
from asterism.graph.operations.shaping import MODES

MANY = 64  # parts that a value is put together of, at most


def part(call: OnnxCall, value: Value, axis: int, start: int, size: int, step: int = 1) -> Value:
    """Of one dimension `size` indices from `start` on."""
    if (start, size, step) == (0, value.shape[axis], 1):
        return value
    settings = {"dim": value.dim(axis), "start": start, "size": size, "step": step}
    return call.layer("slice", value, settings)


def without(call: OnnxCall, value: Value, axis: int) -> Value:
    """Without a dimension of size 1."""
    axis %= len(value.shape)
    return call.reshaped(value, value.shape[:axis] + value.shape[axis + 1 :])


def _reshape(call: OnnxCall) -> Result:
    value, wanted, zeros = call.value(), call.array(1), call.attr("allowzero", 0)
    for sizes in _with_batch(wanted.reshape(-1), call.batch):
        shape = wanted_shape(value.shape, sizes, zeros)
        try:
            return call.reshaped(value, shape)
        except UnsupportedError:
            continue
    raise UnsupportedError("along the batch")


def _with_batch(wanted: Constant, batch: int) -> list[Constant]:
    """The shape that is asked for, with the batch in each place that names its size."""
    places = [place for place, size in enumerate(wanted.tolist()) if size == batch > 0]
    given = [np.where(np.arange(len(wanted)) == place, BATCH, wanted) for place in places]
    return [*given, wanted]


def _flatten(call: OnnxCall) -> Result:
    value, axis = call.value(), call.attr("axis", 1)
    return call.reshaped(value, (math.prod(value.shape[:axis]), math.prod(value.shape[axis:])))


def _squeeze(call: OnnxCall) -> Result:
    value, axes = call.value(), call.integers("axes", 1)
    rank = len(value.shape)
    chosen = [axis for axis in range(rank) if value.shape[axis] == 1]
    if axes is not None:
        chosen = [axis % rank for axis in axes]
    if any(value.shape[axis] != 1 for axis in chosen):
        raise UnsupportedError("along the batch")
    return call.reshaped(value, tuple(n for i, n in enumerate(value.shape) if i not in chosen))


def _unsqueeze(call: OnnxCall) -> Result:
    value, axes = call.value(), call.integers("axes", 1) or []
    rank, sizes = len(value.shape) + len(axes), iter(value.shape)
    new = {axis % rank for axis in axes}
    return call.reshaped(value, tuple(1 if i in new else next(sizes) for i in range(rank)))


def transposed(call: OnnxCall, value: Value, order: Sequence[int]) -> Value:
    """Dimensions in another order; where only the batch moves, there is nothing to do."""
    if sorted(order) != list(range(len(value.shape))):
        raise UnsupportedError(f"in the order {list(order)}")
    inner = [value.axis + 1 + place for place in range(len(value.inner))]
    dims = [inner if axis == value.axis else [value.dim(axis)] for axis in order]
    shape = tuple(value.shape[axis] for axis in order)
    number = call.add("permute", (value.number,), tuple(dim for each in dims for dim in each))
    return value._replace(number=number, shape=shape)


def _transpose(call: OnnxCall) -> Result:
    value = call.value()
    return transposed(call, value, call.attr("perm") or range(len(value.shape))[::-1])


def _slice(call: OnnxCall) -> Result:
    value = call.value()
    for axis, asked in enumerate(slices(call, value.shape)):
        start, stop, step = asked.indices(value.shape[axis])
        if step < 0:
            raise UnsupportedError("backwards")
        size = len(range(start, stop, step))
        value = part(call, value, axis, start, size, step)
    return value


def _gather(call: OnnxCall) -> Result:
    table, axis = call.operand(0), call.attr("axis", 0)
    if not isinstance(table, Value):
        return _embedding(call, table, axis)
    indices, axis = call.array(1), axis % len(table.shape)
    whole = table.shape[axis]
    places = [int(index) % whole for index in indices.reshape(-1) if -whole <= index < whole]
    if len(places) != indices.size or indices.ndim > 1 or not places:
        raise UnsupportedError("with such indices")
    found = _chosen(call, table, axis, places)
    return without(call, found, axis) if indices.ndim == 0 else found


def _chosen(call: OnnxCall, value: Value, axis: int, places: list[int]) -> Value:
    """Some indices of a dimension, in their order."""
    step = places[1] - places[0] if len(places) > 1 else 1
    if step > 0 and places == list(range(places[0], places[-1] + 1, step)):
        return part(call, value, axis, places[0], len(places), step)
    if len(places) > MANY:
        raise UnsupportedError(f"with more than {MANY} indices")
    return joined(call, [part(call, value, axis, place, 1) for place in places], axis)


def _embedding(call: OnnxCall, table: Constant, axis: int) -> Value:
    ids = call.value(1)
    if axis != 0 or ids.kind != "i" or table.ndim < 2:
        raise UnsupportedError("from a table, along another axis or by computed numbers")
    matrix = call.weight(0, table.reshape(len(table), -1))
    found = call.like(ids, call.add("embedding", (ids.number,), (), matrix), "f")
    return call.reshaped(found, (*ids.shape, *table.shape[1:]))


def _split(call: OnnxCall) -> Result:
    value, axis = call.value(), call.attr("axis", 0)
    sizes = parts(call, value.shape[axis])
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    return [part(call, value, axis, *each) for each in zip(starts, sizes, strict=True)]


def joined(call: OnnxCall, values: Sequence[Value], axis: int) -> Value:
    """One after the other along a dimension."""
    if len({value.batch for value in values}) > 1:
        raise UnsupportedError("along the batch")
    dim = values[0].dim(axis)
    number = call.add("cat", tuple(value.number for value in values), {"dim": dim})
    return call.like(values[0], number)


def _concat(call: OnnxCall) -> Result:
    operands, axis = call.operands(), call.attr("axis", 0)
    first = next(each for each in operands if isinstance(each, Value))
    found = [
        each if isinstance(each, Value) else _repeated(call, place, each, first)
        for place, each in enumerate(operands)
    ]
    return joined(call, found, axis) if len(found) > 1 else found[0]


def _repeated(call: OnnxCall, place: int, array: Constant, like: Value) -> Value:
    """Numbers beside values of a batch whose size the file fixes: all examples have the first's."""
    axis = like.axis
    if array.ndim != len(like.shape) or array.shape[axis] != call.batch or like.inner:
        raise UnsupportedError("along the batch")
    shape = (*array.shape[:axis], BATCH, *array.shape[axis + 1 :])
    return call.spread(place, array.take(0, axis), shape)


def _expand(call: OnnxCall) -> Result:
    operand, wanted = call.operand(0), tuple(int(size) for size in call.array(1).reshape(-1))
    rank = max(len(operand.shape), len(wanted))
    before = padded(tuple(operand.shape), rank)
    if isinstance(operand, Value) and operand.axis + rank - len(operand.shape) < len(wanted):
        wanted = tuple(BATCH if n == call.batch and m == BATCH else n  # a batch of fixed size
                       for n, m in zip(padded(wanted, rank), before, strict=True))  # fmt: skip
    shape = combined([before, padded(wanted, rank)])
    if isinstance(operand, Value):
        value = call.reshaped(operand, before)
    else:
        axis = next(axis for axis, size in enumerate(shape) if size % BATCH == 0)
        rows = (1,) if shape[axis] > BATCH else ()
        value = call.spread(0, operand.reshape(before[:axis] + rows + before[axis + 1 :]), shape)
    found = value._replace(shape=shape)
    if call.layers.shapes[value.number] == found.sizes:
        return found
    return found._replace(number=call.add("expand", (value.number,), found.sizes))


def _filled(call: OnnxCall) -> Result:
    """The same number for a whole batch."""
    shape = tuple(int(size) for size in call.array(0).reshape(-1))
    sizes = Value(0, shape).sizes
    call.budget.take(math.prod(sizes))
    number = np.asarray(call.attr("value", np.float32(0))).reshape(())
    return call.spread(0, np.full(sizes, number), shape)


def _tile(call: OnnxCall) -> Result:
    value, repeats = call.value(), [int(count) for count in call.array(1).reshape(-1)]
    if len(repeats) != len(value.shape) or not all(0 < count <= MANY for count in repeats):
        raise UnsupportedError(f"{repeats} times")
    for axis, count in enumerate(repeats):
        if count > 1:
            value = joined(call, [value] * count, axis)
    return value


def _pad(call: OnnxCall) -> Result:
    value, pads = call.value(), call.integers("pads", 1) or []
    axes = call.integers("axes", 3) or list(range(len(value.shape)))
    mode = {"edge": "replicate", "wrap": "circular"}.get(call.attr("mode", "constant"))
    mode = mode or call.attr("mode", "constant")
    fill = call.number(2, call.attr("value", 0.0))
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        value = padded_value(call, value, axis, before, after, fill, MODES.index(mode))
    return value


def padded_value(
    call: OnnxCall,
    value: Value,
    axis: int,
    before: int,
    after: int,
    fill: float = 0.0,
    mode: int = 0,
) -> Value:
    """More indices before and after; fewer where a number is below zero."""
    size = value.shape[axis]
    if before < 0 or after < 0:
        start, end = max(0, -before), size - max(0, -after)
        value = part(call, value, axis, start, end - start)
    before, after = max(0, before), max(0, after)
    if not before and not after:
        return value
    settings = {"dim": value.dim(axis), "before": before, "after": after, "mode": mode}
    return call.layer("pad", value, {**settings, "value": fill})


def _cast(call: OnnxCall) -> Result:
    """Whole numbers are floats here, as far as they are exact; floats are no whole numbers."""
    value, kind = call.value(), kind_of(call.attr("to", 1))
    if kind == value.kind or kind == "f" or (value.kind, kind) == ("b", "i"):
        return value._replace(kind=kind)
    raise UnsupportedError("of floats to whole numbers")


def _depth_to_space(call: OnnxCall) -> Result:
    value, block = call.plain(), call.attr("blocksize", 1)
    batch, channels, height, width = value.shape
    fewer = channels // block**2
    columns_first = call.attr("mode", "DCR") == "DCR"
    split = (block, block, fewer) if columns_first else (fewer, block, block)
    order = (0, 3, 4, 1, 5, 2) if columns_first else (0, 1, 4, 2, 5, 3)
    found = transposed(call, call.reshaped(value, (batch, *split, height, width)), order)
    return call.reshaped(found, (batch, fewer, height * block, width * block))


def _space_to_depth(call: OnnxCall) -> Result:
    value, block = call.plain(), call.attr("blocksize", 1)
    batch, channels, height, width = value.shape
    rows, columns = height // block, width // block
    split = call.reshaped(value, (batch, channels, rows, block, columns, block))
    found = transposed(call, split, (0, 3, 5, 1, 2, 4))
    return call.reshaped(found, (batch, channels * block**2, rows, columns))


def _as_it_is(call: OnnxCall) -> Result:
    if call.op == "Dropout" and call.has(2) and bool(call.array(2)):
        raise UnsupportedError("in training")
    return call.value()


RULES: dict[str, Callable[[OnnxCall], Result]] = {
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": _filled,
    "DepthToSpace": _depth_to_space,
    "Dropout": _as_it_is,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": _as_it_is,
    "Pad": _pad,
    "Reshape": _reshape,
    "Shape": lambda call: shape_part(call, call.value().shape),
    "Size": lambda call: np.asarray(math.prod(call.value().shape), np.int64),
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
