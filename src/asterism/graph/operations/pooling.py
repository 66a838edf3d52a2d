"""Pooling: the largest or the mean of windows, which slide or divide the image evenly."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from asterism.graph.operations.operation import (
    Example,
    Operation,
    UnsupportedError,
    captured_pair,
    image,
    like_image,
    need,
    pairs,
    settings,
)
from asterism.graph.stages import Array, Call, FusedLayer, Given, NodeLike, Program, Shape

Indices = npt.NDArray[np.int32]
_WINDOW = {**pairs(1, "kernel"), **pairs(0, "stride", "padding"), "ceil": 0}


def channelwise_work(inputs: Sequence[Shape], nonzeros: Sequence[int | None], shape: Shape) -> int:
    """Each weight, and each number of the input's channels, once for each place of the result."""
    return (sum(count or 0 for count in nonzeros) + inputs[0][0]) * math.prod(shape[1:])


class Windows:
    """Along each axis, (first, one after the last) for each output; `factor` of a window's sum."""

    def __init__(
        self, rows: Indices, columns: Indices, dilation: tuple[int, int], factor: Array
    ) -> None:
        self.rows, self.columns, self.dilation, self.factor = rows, columns, dilation, factor


class Pooling(Operation):
    """Of each window one number."""

    largest: bool  # and else the mean

    @abstractmethod
    def windows(self, node: NodeLike, size: tuple[int, int], out: tuple[int, int]) -> Windows:
        """The windows over an image of `size`, with `out` outputs."""

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        x = inputs[0].reshape(len(inputs[0]), *image(inputs[0].shape[1:]))
        _, height, width = image(shape)
        found = self.windows(node, (x.shape[2], x.shape[3]), (height, width))
        out = np.empty((*x.shape[:2], height, width), np.float32)
        for i, j in np.ndindex(height, width):
            (top, bottom), (left, right) = found.rows[i], found.columns[j]
            window = x[:, :, top : bottom : found.dilation[0], left : right : found.dilation[1]]
            if self.largest:
                out[:, :, i, j] = window.max((2, 3), initial=-np.inf)
            else:
                out[:, :, i, j] = window.sum((2, 3)) * found.factor[i, j]
        return out.reshape(len(x), *shape)

    def emit(self, program: Program, layer: FusedLayer) -> None:
        channels, *size = image(program.seen(layer))
        _, *out = image(program.shapes[layer.out])
        found = self.windows(layer.node, (size[0], size[1]), (out[0], out[1]))
        data = (np.concatenate([found.rows.ravel(), found.columns.ravel()]), found.factor)
        bounds = [[0, size[0]]], [[0, size[1]]]
        whole = (found.rows.tolist(), found.columns.tolist()) == bounds and found.dilation == (1, 1)
        places = program.by_place(layer.inputs[0], layer)
        if whole and places is not None and not self.largest:
            sizes = [1, math.prod(size), channels, 0, 0, round(1 / found.factor.item())]
            program.add("MEAN", layer, places, program.out(layer), sizes=sizes)
            return
        source, lies = program.channels(layer.inputs[0], layer)
        sizes = [channels, *size, *out, *found.dilation, *lies, whole]
        program.add(self.kernels[0], layer, source, program.out(layer), sizes=sizes, data=data)


def captured_volume(call: Call, name: str, plane: dict[str, int], deep: dict[str, int]) -> int:
    """A pooling of three dimensions: of each plane, then of the planes by the settings `deep`."""
    channels, depth, height, width = call.shape_of(call.args["self"])[1:]
    _, planes, rows, columns = call.sizes
    flat = call.layer("reshape", (channels * depth, height, width))
    pooled = call.add(name, (flat,), plane)
    stacked = call.add("reshape", (pooled,), (channels, depth, rows * columns))
    return call.add(
        "reshape", (call.add(name, (stacked,), deep),), (channels, planes, rows, columns)
    )


def _third(sizes: int | Sequence[int]) -> int:
    """Of torch's one number, or three, that of the depth."""
    return sizes if isinstance(sizes, int) else sizes[0]


# ---------------------------------------------------------------------- windows that slide


class SlidingPooling(Pooling):
    """Windows of one size at equal distances; a stride of 0 is the size of the window."""

    def capture(self, call: Call) -> int:
        rank, args = len(call.shape) - 2, call.args
        found: dict[str, int] = {"ceil": int(args["ceil_mode"]), **self.more_settings(call)}
        deep = dict(found)
        for name in ("kernel_size", "stride", "padding", "dilation"):
            if args.get(name) not in (None, []):
                sizes = args[name]
                if rank == 3:
                    deep |= captured_pair(name.removesuffix("_size"), [_third(sizes), 1])
                    sizes = sizes if isinstance(sizes, int) else sizes[-2:]
                found |= captured_pair(name.removesuffix("_size"), sizes, min(rank, 2))
        if rank < 3:
            return call.layer(self.name, found)
        return captured_volume(call, self.name, found, {**deep, "padding_w": 0})

    def more_settings(self, call: Call) -> dict[str, int]:
        return {}

    def dilation(self, node: NodeLike) -> tuple[int, int]:
        return 1, 1

    def work(
        self, node: NodeLike, inputs: Sequence[Shape], nonzeros: Sequence[int | None], shape: Shape
    ) -> int:
        return math.prod(node.pair("kernel")) * math.prod(shape)

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        channels, *sizes = image(inputs[0])
        each = zip("hw", sizes, self.dilation(node), strict=True)
        return like_image(inputs[0], channels, *(_count(node, *axis) for axis in each))

    def bounds(
        self, node: NodeLike, size: tuple[int, int], out: tuple[int, int]
    ) -> list[tuple[Indices, Indices]]:
        """Along each axis, the windows inside the image, and how long each is with its padding."""
        each = zip("hw", size, out, self.dilation(node), strict=True)
        return [_sliding(node, *axis) for axis in each]


class MaxPool(SlidingPooling):
    name, code, largest = "max_pool", 3, True
    defaults = settings(**_WINDOW, **pairs(1, "dilation"))
    captures = tuple(f"aten.max_pool{rank}d.default" for rank in (1, 2, 3))
    kernels = ("POOL_MAX",)
    examples = (
        Example((3, 8, 9), {"kernel_h": 2, "kernel_w": 2, "stride_h": 2, "stride_w": 2}),
        Example((2, 9, 9), {"kernel_h": 3, "kernel_w": 2, "stride_h": 1, "stride_w": 2, "ceil": 1}),
        Example((2, 17), {"kernel_w": 3, "stride_w": 2, "padding_w": 1, "dilation_w": 2}),
    )

    def dilation(self, node: NodeLike) -> tuple[int, int]:
        return node.pair("dilation")

    def windows(self, node: NodeLike, size: tuple[int, int], out: tuple[int, int]) -> Windows:
        (rows, _), (columns, _) = self.bounds(node, size, out)
        return Windows(rows, columns, self.dilation(node), np.ones(out, np.float32))

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        rank = len(shapes[0]) - 1
        pool = getattr(torch.nn.functional, f"max_pool{rank}d")
        dilation, ceil = node.pair("dilation")[2 - rank :], bool(node["ceil"])
        return lambda x: pool(x, *_torch_window(node, rank), dilation, ceil)


def halves(node: NodeLike) -> bool:
    """Whether it is max-pooling of two by two next to each other, with what is left over left out.

    With `ceil` a row or column that is left over has outputs of its own.
    """
    return (
        node.op == "max_pool"
        and node.pair("kernel") == (2, 2)
        and node.pair("stride") in ((0, 0), (2, 2))
        and node.pair("padding") == (0, 0)
        and node.pair("dilation") == (1, 1)
        and not node["ceil"]
    )


class AvgPool(SlidingPooling):
    """The mean of a window.

    count_padding  whether the zeros around the image count
    divisor        by which sums are divided in place of their count, unless it is 0
    """

    name, code, largest = "avg_pool", 4, False
    defaults = settings(**_WINDOW, count_padding=1, divisor=0)
    captures = tuple(f"aten.avg_pool{rank}d.default" for rank in (1, 2, 3))
    kernels = ("POOL_AVERAGE", "MEAN")
    onnx = "without a divisor"
    examples = (
        Example((3, 8, 9), {"kernel_h": 3, "kernel_w": 2, "stride_h": 2, "stride_w": 2, "ceil": 1}),
        Example((2, 9, 9), {**dict.fromkeys(("kernel_h", "kernel_w", "stride_h", "stride_w"), 3),
                            "padding_h": 1, "count_padding": 0}),
        Example((2, 9, 9), {**dict.fromkeys(("kernel_h", "kernel_w", "stride_h", "stride_w"), 2),
                            "divisor": 3}, onnx=False),
        Example((2, 17), {"kernel_w": 3, "stride_w": 2, "padding_w": 1}),
    )  # fmt: skip

    def more_settings(self, call: Call) -> dict[str, int]:
        counted, divisor = int(call.args["count_include_pad"]), call.args.get("divisor_override")
        if divisor is not None and len(call.shape) > 4:
            raise UnsupportedError
        return {"count_padding": counted, "divisor": 0 if divisor is None else divisor}

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        need(node["divisor"] >= 0, "its divisor")
        return super().shape(node, inputs, given)

    def windows(self, node: NodeLike, size: tuple[int, int], out: tuple[int, int]) -> Windows:
        (rows, long), (columns, wide) = self.bounds(node, size, out)
        if node["divisor"]:
            factor = np.full(out, 1 / node["divisor"], np.float32)
        elif node["count_padding"]:
            factor = _reciprocal(long, wide)
        else:
            factor = _reciprocal(_lengths(rows), _lengths(columns))
        return Windows(rows, columns, (1, 1), factor)

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        rank = len(shapes[0]) - 1
        pool = getattr(torch.nn.functional, f"avg_pool{rank}d")
        rest: list[Any] = [bool(node["ceil"]), bool(node["count_padding"])]
        rest += [node["divisor"] or None] * (rank == 2)
        return lambda x: pool(x, *_torch_window(node, rank), *rest)


def _torch_window(node: NodeLike, rank: int) -> list[tuple[int, ...]]:
    """Kernel, stride and padding as torch takes them."""
    kernel, stride, padding = (node.pair(n)[2 - rank :] for n in ("kernel", "stride", "padding"))
    return [kernel, tuple(s or k for s, k in zip(stride, kernel, strict=True)), padding]


def _count(node: NodeLike, axis: str, size: int, dilation: int) -> int:
    """How many windows there are along an axis."""
    kernel, padding = node[f"kernel_{axis}"], node[f"padding_{axis}"]
    stride = node[f"stride_{axis}"] or kernel
    right = kernel > 0 and stride > 0 and dilation > 0 and 0 <= padding <= kernel // 2
    need(right, "its settings")
    reach = size + 2 * padding - dilation * (kernel - 1) - 1
    need(reach >= 0, "the window is larger than the input")
    count = reach // stride + 1
    # One more that is not whole, unless it would begin in the padding.
    more = node["ceil"] and reach % stride and count * stride < size + padding
    return count + 1 if more else count


def _sliding(
    node: NodeLike, axis: str, size: int, out: int, dilation: int
) -> tuple[Indices, Indices]:
    kernel, padding = node[f"kernel_{axis}"], node[f"padding_{axis}"]
    first = np.arange(out, dtype=np.int64) * (node[f"stride_{axis}"] or kernel) - padding
    last = first + dilation * (kernel - 1) + 1
    padded = np.minimum(last, size + padding) - first
    # The first that is inside of the image is a whole number of dilations away.
    begin = np.where(first < 0, first + -(first // dilation) * dilation, first)
    bounds = np.stack([begin, np.maximum(np.minimum(last, size), begin)], 1)
    return bounds.astype(np.int32), padded.astype(np.int32)


def _lengths(bounds: Indices) -> Indices:
    return bounds[:, 1] - bounds[:, 0]


def _reciprocal(long: Indices, wide: Indices) -> Array:
    counts = np.outer(long, wide).astype(np.float64)
    return np.divide(1, counts, where=counts > 0, out=np.full_like(counts, np.nan)).astype("f4")


# ---------------------------------------------------------------------- windows that divide


class AdaptivePooling(Pooling):
    """As many windows as are asked for, which cover the image evenly."""

    defaults = settings(**pairs(1, "size"))
    onnx = "to sizes that divide the image's"
    examples = (
        Example((3, 9, 7), {"size_h": 4, "size_w": 3}, onnx=False),
        Example((3, 9), {"size_w": 2}, onnx=False),
        Example((3, 8, 6), {"size_h": 4, "size_w": 3}),
        Example((3, 9), {"size_w": 3}),
    )

    def capture(self, call: Call) -> int:
        _, *sizes = call.sizes
        if len(sizes) < 3:
            return call.layer(self.name, captured_pair("size", sizes, len(sizes)))
        plane = captured_pair("size", sizes[1:])
        deep = captured_pair("size", [sizes[0], sizes[1] * sizes[2]])
        return captured_volume(call, self.name, plane, deep)

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        channels, height, width = image(inputs[0])
        sizes = node.pair("size")
        need(min(sizes) > 0 and height > 0 and width > 0, "its settings")
        return like_image(inputs[0], channels, *sizes)

    def work(
        self, node: NodeLike, inputs: Sequence[Shape], nonzeros: Sequence[int | None], shape: Shape
    ) -> int:
        _, *sizes = image(inputs[0])
        each = zip(sizes, node.pair("size"), strict=True)
        return math.prod(old // new + 2 for old, new in each) * math.prod(shape)

    def windows(self, node: NodeLike, size: tuple[int, int], out: tuple[int, int]) -> Windows:
        rows, columns = (_dividing(*axis) for axis in zip(size, out, strict=True))
        return Windows(rows, columns, (1, 1), _reciprocal(_lengths(rows), _lengths(columns)))

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        rank = len(shapes[0]) - 1
        function, size = getattr(torch.nn.functional, f"{self.name}{rank}d"), node.pair("size")
        return lambda x: function(x, size[2 - rank :])


class AdaptiveAvgPool(AdaptivePooling):
    name, code, largest = "adaptive_avg_pool", 5, False
    captures = tuple(f"aten.adaptive_avg_pool{rank}d.default" for rank in (1, 2, 3))
    kernels = ("POOL_AVERAGE", "MEAN")


class AdaptiveMaxPool(AdaptivePooling):
    name, code, largest = "adaptive_max_pool", 6, True
    captures = tuple(f"aten.adaptive_max_pool{rank}d.default" for rank in (1, 2))
    kernels = ("POOL_MAX",)


def _dividing(size: int, out: int) -> Indices:
    steps = np.arange(out, dtype=np.int64)
    first, last = steps * size // out, -(-(steps + 1) * size // out)
    return np.stack([first, last], 1).astype(np.int32)


OPERATIONS = (MaxPool(), AvgPool(), AdaptiveAvgPool(), AdaptiveMaxPool())
