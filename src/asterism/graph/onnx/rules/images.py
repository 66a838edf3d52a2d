"""Pooling and resizing."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from asterism.graph.network import Node
from asterism.graph.onnx.calls import OnnxCall, Result
from asterism.graph.onnx.reading import Constant
from asterism.graph.onnx.rules.linear import Window, evened
from asterism.graph.onnx.values import Value
from asterism.graph.operations.images.resizing import ALIGNED, EXACT, LINEAR, NEAREST, sources
from asterism.graph.operations.operation import UnsupportedError
from asterism.graph.stages import Number

LONGEST = 2**20  # pixels along one dimension


def _pool(call: OnnxCall) -> Result:
    value, kernel = call.plain(), [int(size) for size in call.attr("kernel_shape") or []]
    if len(kernel) != len(value.shape) - 2 or not 1 <= len(kernel) <= 2:
        raise UnsupportedError(f"of {len(kernel)} dimensions")
    window, largest = Window(call, value.shape[2:], kernel), call.op == "MaxPool"
    counted = bool(call.attr("count_include_pad", 0))
    uneven = any(before != after for before, after in window.pads)
    if (uneven and not largest and not counted) or call.attr("storage_order", 0):
        raise UnsupportedError("with uneven padding")
    fill = -math.inf if largest else 0.0
    value, padding = evened(call, value, window.pads, [size // 2 for size in kernel], fill)
    settings = window.settings(padding, kernel=kernel)
    settings["ceil"] = call.attr("ceil_mode", 0)
    if largest:
        settings |= Window.settings(window, padding, dilation=window.dilations)
        return call.layer("max_pool", value, settings)
    if set(window.dilations) != {1}:
        raise UnsupportedError("with dilation")
    return call.layer("avg_pool", value, {**settings, "count_padding": int(counted)})


def _global_pool(call: OnnxCall) -> Result:
    value = call.plain()
    kind = "max" if call.op == "GlobalMaxPool" else "avg"
    if len(value.shape) not in (3, 4):
        raise UnsupportedError(f"of {len(value.shape) - 2} dimensions")
    return call.layer(f"adaptive_{kind}_pool", value)


# ---------------------------------------------------------------------- resizing


def _resize(call: OnnxCall) -> Result:
    value = call.plain()
    axes = [axis % len(value.shape) for axis in call.attr("axes") or range(len(value.shape))]
    if call.attr("antialias", 0) or call.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise UnsupportedError("with antialias or another aspect")
    for axis, (size, scale) in zip(axes, _wanted(call, value, axes), strict=True):
        if size != value.shape[axis] or scale != 1:
            value = _along(call, value, axis, size, scale)
    return value


def _wanted(call: OnnxCall, value: Value, axes: list[int]) -> list[tuple[int, float]]:
    """The new size and the scale of each dimension."""
    old = [value.shape[axis] for axis in axes]
    if call.has(3):
        return [(int(new), new / size) for new, size in zip(call.array(3), old, strict=True)]
    place = 1 if call.op == "Upsample" or call.opset < 11 else 2
    scales = call.array(place) if call.has(place) else np.array(call.attr("scales"))
    each = zip(scales.tolist(), old, strict=True)
    return [(math.floor(size * scale + 1e-6), scale) for scale, size in each]


def _along(call: OnnxCall, value: Value, axis: int, size: int, scale: float) -> Value:
    """One dimension, in that of our modes which reads the same pixels."""
    old, mode = value.shape[axis], call.attr("mode", "nearest")
    if max(old, size) > LONGEST or axis < 2 or mode not in ("nearest", "linear"):
        raise UnsupportedError(f"by {mode} pixels")
    at = _places(call, old, size, scale)
    wanted = _nearest(call, at, old) if mode == "nearest" else np.clip(at, 0, old - 1)
    for ours in (NEAREST, EXACT) if mode == "nearest" else (LINEAR, ALIGNED):
        for factor in (0.0, scale):
            found: dict[str, Number] = {"dim": axis, "size": size, "mode": ours, "scale": factor}
            low, _, part = sources(Node("resize", (0,), settings=found), old)
            if np.allclose(np.minimum(low + part, old - 1), wanted, atol=1e-4):
                return call.layer("resize", value, found)
    raise UnsupportedError(f"by {mode} pixels, {call.attr('coordinate_transformation_mode')}")


def _places(call: OnnxCall, old: int, new: int, scale: float) -> Constant:
    """Where each new pixel lies among the old ones."""
    at = np.arange(new, dtype=np.float64)
    default = "asymmetric" if call.op == "Upsample" or call.opset < 11 else "half_pixel"
    how = call.attr("coordinate_transformation_mode", default)
    if how == "align_corners":
        return at * (old - 1) / max(1, new - 1)
    if how == "asymmetric":
        return at / scale
    if how == "half_pixel" or (how == "pytorch_half_pixel" and new > 1):
        return (at + 0.5) / scale - 0.5
    if how == "pytorch_half_pixel":
        return np.zeros(new)
    raise UnsupportedError(how)


def _nearest(call: OnnxCall, at: Constant, old: int) -> Constant:
    default = "floor" if call.op == "Upsample" or call.opset < 11 else "round_prefer_floor"
    how = call.attr("nearest_mode", default)
    ways: dict[str, Callable[[Constant], Constant]] = {
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    return np.clip(ways[how](at), 0, old - 1)


RULES: dict[str, Callable[[OnnxCall], Result]] = {
    **dict.fromkeys(("MaxPool", "AveragePool"), _pool),
    **dict.fromkeys(("GlobalMaxPool", "GlobalAveragePool"), _global_pool),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
}
