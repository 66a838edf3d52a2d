"""Functions of each number by itself, and two values or more number by number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from asterism.graph.onnx.calls import OnnxCall, Result
from asterism.graph.onnx.reading import Constant
from asterism.graph.onnx.values import Sizes, Value, combined, padded
from asterism.graph.operations.operation import UnsupportedError
from asterism.graph.stages import Number

# ---------------------------------------------------------------------- of one value


def _plain(op: str, **settings: Number) -> Callable[[OnnxCall], Result]:
    return lambda call: call.layer(op, call.value(), settings)


def _scaled(factor: float, shift: float) -> Callable[[OnnxCall], Result]:
    return lambda call: scaled(call, call.value(), factor, shift)


def scaled(call: OnnxCall, value: Value, factor: float, shift: float) -> Value:
    """Value · factor + shift."""
    return call.like(value, call.layers.scaled(value.number, factor, shift))


def _elu(call: OnnxCall) -> Result:
    alpha = call.attr("alpha", 1.6732632423543772 if call.op == "Selu" else 1.0)
    width = alpha if call.op == "Celu" else 1.0
    found = call.layer("elu", call.value(), {"alpha": alpha, "width": width})
    factor = call.attr("gamma", 1.0507009873554805) if call.op == "Selu" else 1.0
    return scaled(call, found, factor, 0.0)


def _clip(call: OnnxCall) -> Result:
    low = call.number(1, call.attr("min", -math.inf))
    high = call.number(2, call.attr("max", math.inf))
    return call.layer("clamp", call.value(), {"low": low, "high": high})


def _hard_sigmoid(call: OnnxCall) -> Result:
    alpha, beta = call.attr("alpha", 0.2), call.attr("beta", 0.5)
    if math.isclose(alpha, 1 / 6, rel_tol=1e-6) and beta == 0.5:
        return call.layer("hard_sigmoid", call.value())
    return call.layer("clamp", scaled(call, call.value(), alpha, beta), {"low": 0.0, "high": 1.0})


def _softsign(call: OnnxCall) -> Result:
    value = call.value()
    below = scaled(call, call.layer("abs", value), 1.0, 1.0)
    return call.like(value, call.add("div", (value.number, below.number)))


def _swish(call: OnnxCall) -> Result:
    value, alpha = call.value(), call.attr("alpha", 1.0)
    if alpha == 1:
        return call.layer("silu", value)
    gate = call.layer("sigmoid", scaled(call, value, alpha, 0.0))
    return call.like(value, call.add("mul", (value.number, gate.number)))


def _prelu(call: OnnxCall) -> Result:
    value, slope = call.plain(), call.array(1)
    if slope.size == 1 or slope.shape[-len(value.shape) + 1 :] == (
        slope.size,
        *[1] * (len(value.shape) - 2),
    ):
        return call.layer("prelu", value, (), call.weight(1, slope.reshape(-1)))
    raise UnsupportedError("with slopes that are not by channel")


# ---------------------------------------------------------------------- of two values


def aligned(call: OnnxCall, places: Sequence[int]) -> tuple[list[int], Value]:
    """Inputs with one rank, numbers as values too; and a value whose batch is where theirs is."""
    operands = [call.operand(place) for place in places]
    rank = max(len(each.shape) for each in operands)
    values = [each for each in operands if isinstance(each, Value)]
    moved = [call.reshaped(value, padded(value.shape, rank)) for value in values]
    first = moved[0]
    if len({value.batch for value in moved}) > 1:
        raise UnsupportedError("along the batch")
    found, rest = [], iter(moved)
    for place, each in zip(places, operands, strict=True):
        value = next(rest) if isinstance(each, Value) else _beside(call, place, each, first)
        found.append(value.number)
    combined([padded(tuple(each.shape), rank) for each in operands if isinstance(each, Value)])
    return found, first


def _beside(call: OnnxCall, place: int, array: Constant, value: Value) -> Value:
    """Numbers as a value, with the batch where another has it."""
    shape = padded(array.shape, len(value.shape))
    if shape[value.axis] not in (1, call.batch):
        raise UnsupportedError("along the batch")
    first = array.reshape(shape).take(0, value.axis)
    sizes = first.shape[: value.axis] + (1,) * len(value.inner) + first.shape[value.axis :]
    return call.spread(place, first.reshape(sizes), value.shape)


def of_two(call: OnnxCall, op: str, places: Sequence[int] = (0, 1), kind: str = "f") -> Value:
    """Two inputs of a call by one of our operations."""
    numbers, like = aligned(call, places)
    return call.like(like, call.add(op, (numbers[0], numbers[1])), kind)


def _number(operand: Value | Constant) -> float | None:
    """Of numbers that are all one, that one."""
    if isinstance(operand, Value) or operand.size != 1:
        return None
    return float(operand.reshape(()))


def _with_rank(value: Value, call: OnnxCall, other: Constant) -> Value:
    """A value with as many dimensions as one number has that it is combined with."""
    return call.reshaped(value, padded(value.shape, max(len(value.shape), other.ndim)))


def _arithmetic(call: OnnxCall) -> Result:
    one, other = call.operand(0), call.operand(1)
    first, second = (n if n is not None and math.isfinite(n) else None
                     for n in map(_number, (one, other)))  # fmt: skip
    whole = [each.kind == "i" for each in (one, other) if isinstance(each, Value)]
    if call.op == "Div" and all(whole) and not any(_is_float(each) for each in (one, other)):
        raise UnsupportedError("of whole numbers")
    if isinstance(one, Value) and not isinstance(other, Value) and second is not None:
        return _by_number(call, _with_rank(one, call, other), second)
    if isinstance(other, Value) and not isinstance(one, Value) and first is not None:
        found = _number_by(call, _with_rank(other, call, one), first)
        if found is not None:
            return found
    biased = _as_bias(call) if call.op == "Add" else None
    return of_two(call, call.op.lower()) if biased is None else biased


def _is_float(operand: Value | Constant) -> bool:
    return not isinstance(operand, Value) and operand.dtype.kind == "f"


def _by_number(call: OnnxCall, value: Value, number: float) -> Result:
    if call.op == "Div" and number == 0:
        raise UnsupportedError("by zero")
    factor = {"Mul": number, "Div": 1 / (number or 1)}.get(call.op, 1.0)
    return scaled(call, value, factor, {"Add": number, "Sub": -number}.get(call.op, 0.0))


def _number_by(call: OnnxCall, value: Value, number: float) -> Result | None:
    if call.op == "Div":
        return scaled(call, call.layer("power", value, {"exponent": -1.0}), number, 0.0)
    factor = {"Mul": number, "Sub": -1.0}.get(call.op, 1.0)
    return scaled(call, value, factor, 0.0 if call.op == "Mul" else number)


def _as_bias(call: OnnxCall) -> Value | None:
    """A sum with numbers for each output, in the layer before that has no bias."""
    place = 0 if isinstance(call.operand(1), Value) else 1
    value, bias = call.operand(1 - place), call.operand(place)
    if not isinstance(value, Value) or isinstance(bias, Value):
        return None
    before = call.layers.maker(value.number)
    if before is None or before.op not in ("linear", "conv", "conv3d") or len(before.weights) > 1:
        return None
    rank = len(value.shape)
    channel = rank - 1 if before.op == "linear" else 1
    outputs = value.shape[channel]
    spread = tuple(outputs if axis == channel else 1 for axis in range(rank))
    if bias.ndim > rank or padded(bias.shape, rank) != spread or not value.is_plain:
        return None
    weights = (before.weights[0], call.weight(place, bias.reshape(-1)))
    return call.like(value, call.add(before.op, before.inputs, before.settings, *weights))


def _power(call: OnnxCall) -> Result:
    value, exponent = call.value(), call.array(1)
    if exponent.size != 1:
        raise UnsupportedError("with several exponents")
    return call.layer("power", value, {"exponent": float(exponent.reshape(()))})


def _of_all(op: str) -> Callable[[OnnxCall], Result]:
    """Of as many inputs as there are."""

    def rule(call: OnnxCall) -> Result:
        numbers, like = aligned(call, range(call.count))
        found = numbers[0]
        for other in numbers[1:]:
            found = call.add(op, (found, other))
        made = call.like(like, found)
        return scaled(call, made, 1 / call.count, 0.0) if call.op == "Mean" else made

    return rule


def _extreme(call: OnnxCall) -> Result:
    """With one number a limit, as in a clamp."""
    if call.count == 2:
        for place in (0, 1):
            limit, value = call.operand(place), call.operand(1 - place)
            number = _number(limit)
            if number is not None and isinstance(value, Value) and not isinstance(limit, Value):
                limits = {"low": number, "high": math.inf}
                if call.op == "Min":
                    limits = {"low": -math.inf, "high": number}
                value = _with_rank(value, call, limit)
                idle = number == (math.inf if call.op == "Min" else -math.inf)
                return value if idle else call.layer("clamp", value, limits)
    return _of_all("maximum" if call.op == "Max" else "minimum")(call)


# ---------------------------------------------------------------------- truth values


def _compared(call: OnnxCall) -> Result:
    places = (1, 0) if call.op in ("Less", "GreaterOrEqual") else (0, 1)
    op = "equal" if call.op == "Equal" else "greater"
    found = of_two(call, op, places, "b")
    # a ≥ b is not (b > a), but for numbers that are none.
    return scaled(call, found, -1.0, 1.0) if call.op.endswith("OrEqual") else found


def _is_nan(call: OnnxCall) -> Result:
    """What is not equal to itself."""
    value = call.value()
    return scaled(call, call.like(value, call.add("equal", (value.number,) * 2), "b"), -1.0, 1.0)


def _logical(op: str) -> Callable[[OnnxCall], Result]:
    return lambda call: of_two(call, op, (0, 1), "b")


def _where(call: OnnxCall) -> Result:
    """What is kept of one value, and what is not of the other, as a sum."""
    (condition, yes, no), like = aligned(call, (0, 1, 2))
    kept = [_kept(call, condition, yes)]
    unless = call.layers.scaled(condition, -1.0, 1.0)
    kept.append(_kept(call, unless, no))
    made = [each for each in kept if each is not None]
    kind = next((each.kind for each in call.operands()[1:] if isinstance(each, Value)), "f")
    found = call.add("add", (made[0], made[1])) if len(made) > 1 else made[0]
    return call.like(like, found, kind)


def _kept(call: OnnxCall, condition: int, value: int) -> int | None:
    """None for zeros, which a sum does not need."""
    numbers = call.layers.constant(value)
    if numbers is not None and not numbers.any():
        return None
    return call.add("keep", (condition, value))


def _one_hot_shape(shape: Sizes, axis: int, depth: int) -> Sizes:
    axis %= len(shape) + 1
    return (*shape[:axis], depth, *shape[axis:])


def _one_hot(call: OnnxCall) -> Result:
    """Ids compared with all that there may be."""
    ids, depth = call.value(), int(call.number(1, 0))
    off, on = call.array(2).reshape(-1).tolist()
    axis = call.attr("axis", -1) % (len(ids.shape) + 1)
    call.budget.take(max(0, depth))
    value = call.reshaped(ids, _one_hot_shape(ids.shape, axis, 1))
    sizes = [1] * len(call.layers.shapes[value.number])
    sizes[value.dim(axis) - 1] = depth
    all_ids = call.spread(1, np.arange(depth).reshape(sizes), value.shape)
    found = call.like(value, call.add("equal", (value.number, all_ids.number)), "f")
    return scaled(call, found, on - off, off)


RULES: dict[str, Callable[[OnnxCall], Result]] = {
    **{name: _plain(name.lower()) for name in ("Relu", "Sigmoid", "Tanh", "Softplus", "Mish")},
    **{name: _plain(name.lower()) for name in ("Exp", "Log", "Abs", "Erf")},
    "HardSwish": _plain("hard_swish"),
    "LeakyRelu": lambda call: call.layer(
        "leaky_relu", call.value(), {"slope": call.attr("alpha", 0.01)}
    ),
    "Gelu": lambda call: call.layer(
        "gelu", call.value(), {"tanh": int(call.attr("approximate", "none") == "tanh")}
    ),
    **dict.fromkeys(("Elu", "Selu", "Celu"), _elu),
    "Clip": _clip,
    "HardSigmoid": _hard_sigmoid,
    "Softsign": _softsign,
    "Swish": _swish,
    "PRelu": _prelu,
    "Neg": _scaled(-1.0, 0.0),
    "Not": _scaled(-1.0, 1.0),
    "Sqrt": _plain("power", exponent=0.5),
    "Reciprocal": _plain("power", exponent=-1.0),
    "Pow": _power,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _arithmetic),
    **dict.fromkeys(("Max", "Min"), _extreme),
    **dict.fromkeys(("Sum", "Mean"), _of_all("add")),
    **dict.fromkeys(("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"), _compared),
    "IsNaN": _is_nan,
    "And": _logical("mul"),
    "Or": _logical("maximum"),
    "Where": _where,
    "OneHot": _one_hot,
}
