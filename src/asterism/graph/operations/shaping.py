"""Numbers in another shape or order, and parts of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt

from asterism.graph.operations.constants import expanded
from asterism.graph.operations.operation import (
    MAX_SIZE,
    Example,
    Operation,
    UnsupportedError,
    need,
    settings,
)
from asterism.graph.stages import Array, Call, FusedLayer, Given, Mask, NodeLike, Program, Shape


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


class Moving(Operation):
    """Each number of the result is one of the input's, or one that is the same for all."""

    kernels = ("GATHER", "SPREAD")

    @abstractmethod
    def move(self, node: NodeLike, x: Any, filling: float) -> Any:
        """The result of a batch; `filling` is for places that no number of the input goes to."""

    def filling(self, node: NodeLike) -> float:
        return 0.0

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        moved: Array = self.move(node, inputs[0], self.filling(node))
        return moved

    def places(self, node: NodeLike, shape: Shape) -> npt.NDArray[np.int32]:
        """For each number of the result its place in an input of `shape`, or −1."""
        places = np.arange(math.prod(shape), dtype=np.int32).reshape(1, *shape)
        return np.ascontiguousarray(self.move(node, places, -1)[0])

    def emit(self, program: Program, layer: FusedLayer) -> None:
        places = self.places(layer.node, program.seen(layer))
        program.move(layer, places, self.filling(layer.node))

    def read(self, layer: FusedLayer, needed: Mask, shape: Shape) -> Mask:
        places = self.places(layer.node, shape)[needed]
        read = np.zeros(math.prod(shape), bool)
        read[places[places >= 0]] = True
        return read.reshape(shape)


def gathering(places: npt.NDArray[np.int32], filling: float) -> dict[str, Any]:
    """What the kernel GATHER reads of its step."""
    run = _run(places)
    firsts = np.ascontiguousarray(places.reshape(-1)[::run])
    return {"sizes": [firsts.size, run], "data": (firsts,), "a": filling}


def _run(places: npt.NDArray[np.int32]) -> int:
    """How many numbers stay side by side, or are all filled in: along as many dimensions as can be.

    >>> _run(np.array([[[4, 5], [6, 7]], [[-1, -1], [-1, -1]]], np.int32))
    4
    """
    run = 1
    for length in accumulate(places.shape[::-1], mul):
        rows = places.reshape(-1, max(1, length))
        together = (np.diff(rows) == 1).all(1) & (rows[:, 0] >= 0)
        if not (together | (rows < 0).all(1)).all():
            break
        run = max(1, length)
    return run


class Permute(Moving):
    """Its settings are the dimensions in their new order, counted from 1: the batch stays first."""

    name, code, free = "permute", 22, True
    captures = (
        *("aten.permute.default", "aten.transpose.int", "aten.mT.default"),
        *("aten.swapaxes.default", "aten.pixel_shuffle.default", "aten.pixel_unshuffle.default"),
    )
    examples = (Example((3, 5, 7), (3, 1, 2)),)

    def capture(self, call: Call) -> int:
        if "pixel" in call.name:
            return _captured_shuffle(call)
        rank, args = len(call.shape), call.args
        order = [dim % rank for dim in args.get("dims", range(rank))]
        if "dims" not in args:
            one = args.get("dim0", args.get("axis0", -2)) % rank
            other = args.get("dim1", args.get("axis1", -1)) % rank
            order[one], order[other] = order[other], order[one]
        if order[0] != 0:
            raise UnsupportedError
        return call.layer("permute", tuple(order[1:]))

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        fits = sorted(node.sizes) == list(range(1, len(inputs[0]) + 1))
        need(fits, f"dimensions {node.sizes}")
        return tuple(inputs[0][dim - 1] for dim in node.sizes)

    def move(self, node: NodeLike, x: Any, filling: float) -> Any:
        return x.transpose(0, *node.sizes)

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda x: x.permute(0, *node.sizes)


def _captured_shuffle(call: Call) -> int:
    """Pixels to channels or back: reshaped, permuted, reshaped."""
    _, channels, height, width = call.shape_of(call.args["self"])
    if "upscale_factor" in call.args:
        r = call.args["upscale_factor"]
        sizes, order = (channels // r**2, r, r, height, width), (1, 4, 2, 5, 3)
    else:
        r = call.args["downscale_factor"]
        sizes, order = (channels, height // r, r, width // r, r), (1, 3, 5, 2, 4)
    split = call.layer("reshape", sizes)
    return call.add("reshape", (call.add("permute", (split,), order),), call.sizes)


class Slice(Moving):
    """Of a dimension `size` indices from `start` on, every `step`-th; the batch is dimension 0.

    A start below 0 counts from the end.
    """

    name, code = "slice", 30
    defaults = settings(dim=1, start=0, size=1, step=1)
    captures = (
        *("aten.slice.Tensor", "aten.select.int", "aten.narrow.default", "aten.chunk.default"),
        *("aten.split.Tensor", "aten.split_with_sizes.default", "aten.unbind.int"),
    )
    examples = (
        Example((3, 5, 7), {"size": 2}),
        Example((3, 5, 7), {"dim": 3, "start": 1, "size": 3, "step": 2}),
    )

    def capture(self, call: Call) -> int:
        whole = call.shape_of(call.args["self"])
        dim = call.args["dim"] % len(whole)
        start, step = call.args.get("start") or 0, call.args.get("step", 1)
        size = 1 if len(call.shape) < len(whole) else call.shape[dim]
        if dim == 0 and call.shape == whole:
            return call.value(call.args["self"])
        start = call.before if call.item is not None else call.args.get("index", start)
        if dim == 0 or not all(isinstance(n, int) for n in (start, size)):
            raise UnsupportedError
        if isinstance(whole[dim], int):
            if (size, step) == (whole[dim], 1):
                return call.value(call.args["self"])
            start = max(0, start + whole[dim]) if start < 0 else start
        part = call.layer("slice", {"dim": dim, "start": start, "size": size, "step": step})
        return part if len(call.shape) == len(whole) else call.add("reshape", (part,), call.sizes)

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        axis, size, step = node["dim"] - 1, node["size"], node["step"]
        need(0 <= axis < len(inputs[0]), "its dimension")
        start = self.start(node, inputs[0][axis])
        fits = start >= 0 and step > 0 and size >= 0
        need(fits and start + (size - 1) * step < inputs[0][axis], "its settings")
        return (*inputs[0][:axis], size, *inputs[0][axis + 1 :])

    def start(self, node: NodeLike, size: int) -> int:
        """Counted from the beginning of a dimension of this size."""
        return node["start"] + (size if node["start"] < 0 else 0)

    def move(self, node: NodeLike, x: Any, filling: float) -> Any:
        start, step = self.start(node, x.shape[node["dim"]]), node["step"]
        return x[(slice(None),) * node["dim"] + (slice(start, start + node["size"] * step, step),)]

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        start, step = self.start(node, shapes[0][node["dim"] - 1]), node["step"]
        part = slice(start, start + (node["size"] - 1) * step + 1, step)
        return lambda x: x[(slice(None),) * node["dim"] + (part,)]


class Pad(Moving):
    """A dimension with more indices before and after it; the batch is dimension 0.

    mode   0 fills them with `value`, 1 reflects at the ends, 2 repeats the ends, 3 is circular
    """

    name, code = "pad", 43
    defaults = settings(dim=1, before=0, after=0, mode=0, value=0.0)
    captures = ("aten.pad.default", "aten.constant_pad_nd.default")
    onnx = "not circular"
    examples = (
        Example((3, 5, 7), {"before": 2, "after": 1, "value": 0.5}),
        Example((3, 5, 7), {"dim": 2, "before": 4, "after": 2, "mode": 1}),
        Example((3, 5, 7), {"dim": 3, "before": 1, "after": 2, "mode": 2}),
        Example((3, 5, 7), {"dim": 3, "before": 5, "mode": 3}, onnx=False),
    )

    def capture(self, call: Call) -> int:
        mode = MODES.index(call.args.get("mode", "constant"))
        pads, rank = list(call.args["pad"]), len(call.shape)
        number = float(call.args["value"] or 0)
        value = call.value(call.args["self"])
        for axis, (before, after) in enumerate(zip(pads[::2], pads[1::2], strict=True)):
            dim = rank - 1 - axis
            if (dim == 0 and before | after) or min(before, after) < 0:
                raise UnsupportedError
            if before or after:
                found = {"dim": dim, "before": before, "after": after, "mode": mode}
                value = call.add("pad", (value,), {**found, "value": number})
        return value

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        axis, pads = node["dim"] - 1, (node["before"], node["after"])
        need(0 <= axis < len(inputs[0]), "its dimension")
        size = inputs[0][axis]
        most = (MAX_SIZE, size - 1, MAX_SIZE * (size > 0), size)
        need(0 <= node["mode"] < len(MODES), "its mode")
        need(min(pads) >= 0 and max(pads) <= most[node["mode"]], "its settings")
        return (*inputs[0][:axis], size + sum(pads), *inputs[0][axis + 1 :])

    def filling(self, node: NodeLike) -> float:
        return float(node.number("value"))

    def move(self, node: NodeLike, x: Any, filling: float) -> Any:
        pads = [(0, 0)] * x.ndim
        pads[node["dim"]] = (node["before"], node["after"])
        if node["mode"] == 0:
            return np.pad(x, pads, constant_values=filling)
        return np.pad(x, pads, ("reflect", "edge", "wrap")[node["mode"] - 1])

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        pads = [0, 0] * (len(shapes[0]) - node["dim"]) + [node["before"], node["after"]]
        mode, value = MODES[node["mode"]], self.filling(node)
        if mode == "constant":
            return lambda x: torch.nn.functional.pad(x, pads, value=value)
        pads += [0, 0] * (len(shapes[0]) - 1 - len(pads) // 2)  # one pair for each place
        return lambda x: torch.nn.functional.pad(x, pads, mode)


MODES = ("constant", "reflect", "replicate", "circular")


class Expand(Moving):
    """Repeated along dimensions of size 1; its settings are the new shape, without the batch."""

    name, code, free = "expand", 31, True
    captures = ("aten.expand.default",)
    examples = (Example((3, 1, 7), (3, 5, 7)),)

    def capture(self, call: Call) -> int:
        return expanded(call)

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        need(len(node.sizes) == len(inputs[0]), f"sizes {node.sizes}")
        each = zip(node.sizes, inputs[0], strict=True)
        need(all(new >= 0 and old in (1, new) for new, old in each), f"sizes {node.sizes}")
        return node.sizes

    def move(self, node: NodeLike, x: Any, filling: float) -> Any:
        return np.broadcast_to(x, (len(x), *node.sizes))

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda x: x.expand(-1, *node.sizes)


OPERATIONS = (Flatten(), Reshape(), Permute(), Slice(), Pad(), Expand())
