"""Which inputs a pooling layer's outputs look at, however the layer was described."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asterism.graph.network import Node

Indices = npt.NDArray[np.int32]


class Windows(NamedTuple):
    """Along each axis, (first, one after the last) for each output; `factor` of a window's sum."""

    rows: Indices
    columns: Indices
    dilation: tuple[int, int]
    factor: npt.NDArray[np.float32]


def find(node: Node, size: tuple[int, int], out: tuple[int, int]) -> Windows:
    """The windows of a pooling node over an image of `size`, with `out` outputs."""
    if node.op.startswith("adaptive"):
        rows, columns = (_adaptive(*pair) for pair in zip(size, out, strict=True))
        return Windows(rows, columns, (1, 1), _reciprocal(_lengths(rows), _lengths(columns)))
    dilation = node.pair("dilation") if node.op == "max_pool" else (1, 1)
    axes = [_sliding(node, axis, size[i], out[i], dilation[i]) for i, axis in enumerate("hw")]
    (rows, long), (columns, wide) = axes
    if node.op == "max_pool":
        return Windows(rows, columns, dilation, np.ones(out, np.float32))
    if node["divisor"]:
        factor = np.full(out, 1 / node["divisor"], np.float32)
    elif node["count_padding"]:
        factor = _reciprocal(long, wide)
    else:
        factor = _reciprocal(_lengths(rows), _lengths(columns))
    return Windows(rows, columns, dilation, factor)


def _lengths(bounds: Indices) -> Indices:
    return bounds[:, 1] - bounds[:, 0]


def _reciprocal(long: Indices, wide: Indices) -> npt.NDArray[np.float32]:
    counts = np.outer(long, wide).astype(np.float64)
    return np.divide(1, counts, where=counts > 0, out=np.full_like(counts, np.nan)).astype("f4")


def _adaptive(size: int, out: int) -> Indices:
    steps = np.arange(out, dtype=np.int64)
    first, last = steps * size // out, -(-(steps + 1) * size // out)
    return np.stack([first, last], 1).astype(np.int32)


def _sliding(node: Node, axis: str, size: int, out: int, dilation: int) -> tuple[Indices, Indices]:
    """The windows inside the image, and how many entries each has with the padding."""
    kernel, padding = node[f"kernel_{axis}"], node[f"padding_{axis}"]
    first = np.arange(out, dtype=np.int64) * (node[f"stride_{axis}"] or kernel) - padding
    last = first + dilation * (kernel - 1) + 1
    padded = np.minimum(last, size + padding) - first
    begin = np.where(first < 0, first + -(first // dilation) * dilation, first)
    bounds = np.stack([begin, np.maximum(np.minimum(last, size), begin)], 1)
    return bounds.astype(np.int32), padded.astype(np.int32)
