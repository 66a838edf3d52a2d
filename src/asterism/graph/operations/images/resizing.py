"""Images at another size: the nearest pixel, or a mean of the two nearest, along one dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from asterism.graph.operations.operation import (
    MAX_SIZE,
    Example,
    Operation,
    UnsupportedError,
    need,
    settings,
)
from asterism.graph.stages import Array, Call, FusedLayer, Given, NodeLike, Program, Shape

NEAREST, LINEAR, ALIGNED, EXACT = range(4)
_LINEAR = ("linear1d", "bilinear2d", "trilinear3d")
_NEAREST = ("nearest1d", "nearest2d", "nearest3d")
Indices = npt.NDArray[np.int32]


class Resize(Operation):
    """One dimension to another size; two or three dimensions are one after the other.

    mode   0 the nearest before, 1 linear, 2 linear from corner to corner, 3 the nearest
    scale  by which it grows, where that is not the quotient of the sizes; else 0
    """

    name, code = "resize", 44
    defaults = settings(dim=2, size=1, mode=NEAREST, scale=0.0)
    captures = (
        *(f"aten.upsample_{name}.vec" for name in (*_LINEAR, *_NEAREST)),
        *(f"aten._upsample_nearest_exact{rank}d.vec" for rank in (1, 2, 3)),
    )
    kernels = ("RESIZE",)
    onnx = "without a scale that is not the quotient of the sizes"
    examples = (
        Example((3, 5, 7), {"size": 10}),
        Example((3, 5, 7), {"dim": 3, "size": 9, "mode": LINEAR}),
        Example((3, 5, 7), {"size": 8, "mode": ALIGNED}),
        Example((3, 5), {"size": 3, "mode": EXACT}, onnx=False),
        Example((3, 2, 5, 7), {"dim": 4, "size": 16, "mode": LINEAR, "scale": 2.3}, onnx=False),
    )

    def capture(self, call: Call) -> int:
        aligned, scales = call.args.get("align_corners"), call.args["scale_factors"]
        mode = (ALIGNED if aligned else LINEAR) if "linear" in call.name else NEAREST
        mode = EXACT if "exact" in call.name else mode
        value, before = call.value(call.args["input"]), call.shape_of(call.args["input"])
        for dim, (old, new) in enumerate(zip(before, call.shape, strict=True)):
            if dim < 2 or (old == new and not scales):
                continue
            if not isinstance(new, int):
                raise UnsupportedError
            scale = float(scales[dim - 2]) if scales and mode != ALIGNED else 0.0
            scale = 0.0 if scale * old == new else scale
            if (old, scale) != (new, 0.0):
                found = {"dim": dim, "size": new, "mode": mode, "scale": scale}
                value = call.add("resize", (value,), found)
        return value

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        axis, size, scale = node["dim"] - 1, node["size"], node.number("scale")
        need(len(inputs[0]) in (2, 3, 4) and 0 < axis < len(inputs[0]), "its dimension")
        need(0 <= node["mode"] <= EXACT, "its mode")
        old = inputs[0][axis]
        need(0 < size <= MAX_SIZE and 0 < old <= MAX_SIZE, "its size")
        plain = scale == 0 or (math.isfinite(scale) and node["mode"] != ALIGNED)
        need(plain and (scale == 0 or math.floor(old * scale) == size), "its scale")
        return (*inputs[0][:axis], size, *inputs[0][axis + 1 :])

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        dim, x = node["dim"], inputs[0]
        low, high, part = sources(node, x.shape[dim])
        part = part.reshape(-1, *[1] * (x.ndim - 1 - dim))
        one, other = x.take(low, dim), x.take(high, dim)
        out: Array = np.where(part == 0, one, one * (1 - part) + other * part)
        return out

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        places = list(shapes[0][1:])
        names = ("nearest", ("linear", "bilinear", "trilinear")[len(places) - 1])
        mode = "nearest-exact" if node["mode"] == EXACT else names[node["mode"] > NEAREST]
        rest = {"align_corners": node["mode"] == ALIGNED} if mode in names[1:] else {}
        places[node["dim"] - 2] = node["size"]
        scales = [1.0] * len(places)
        scales[node["dim"] - 2] = float(node.number("scale"))
        size = {"scale_factor": scales} if node.number("scale") else {"size": places}
        return lambda x: torch.nn.functional.interpolate(x, mode=mode, **size, **rest)

    def emit(self, program: Program, layer: FusedLayer) -> None:
        shape, axis = program.seen(layer), layer.node["dim"] - 1
        data = sources(layer.node, shape[axis])
        around = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        sizes = [around[0], shape[axis], layer.node["size"], around[1]]
        source = program.rows(layer.inputs[0], layer)
        program.add("RESIZE", layer, source, program.out(layer), sizes=sizes, data=data)


def sources(node: NodeLike, old: int) -> tuple[Indices, Indices, Array]:
    """For each new index two old ones, and the part that the second has; computed as by torch."""
    new, mode, f32 = node["size"], node["mode"], np.float32
    at = np.arange(new, dtype=f32)
    if mode == ALIGNED:
        ratio = f32(old - 1) / f32(new - 1) if new > 1 else f32(0)
    else:
        ratio = f32(1 / node.number("scale")) if node.number("scale") else f32(old) / f32(new)
    if mode == LINEAR:
        at = np.maximum(ratio * (at + f32(0.5)) - f32(0.5), 0)
    else:
        at = ratio * (at + f32(0.5) if mode == EXACT else at)
    low = np.minimum(at.astype(np.int32), old - 1).astype(np.int32)
    if mode in (NEAREST, EXACT):
        return low, low, np.zeros(new, f32)
    return low, np.minimum(low + 1, old - 1).astype(np.int32), np.clip(at - low, 0, 1).astype(f32)


OPERATIONS = (Resize(),)
