"""Layers without weights that torch computes, over blocks of images: (blocks, …, 16).

A dimension of an example is the same dimension of a block; the last one is the images.
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from asterism.errors import InputError
from asterism.graph.live.blocks import LANES
from asterism.graph.network import Node

Run = Callable[..., Tensor]  # of the number of images, and the values


class NotLiveError(InputError):
    """The network, or this installation, cannot be trained through the non-zeros alone."""


def _mean(node: Node) -> Run:
    dims = tuple(range(node["dim"], node["dim"] + node["count"]))
    return lambda _, value: value.mean(dims, keepdim=True)


def _average(node: Node) -> Run:
    """Over images, whose lanes are a third dimension."""
    kernel = node.pair("kernel")
    stride = tuple(s or k for s, k in zip(node.pair("stride"), kernel, strict=True))
    settings = ((*kernel, 1), (*stride, 1), (*node.pair("padding"), 0))
    rest = (bool(node["ceil"]), bool(node["count_padding"]), node["divisor"] or None)

    def run(_: int, value: Tensor) -> Tensor:
        if value.shape[2:4] == kernel and not any(node.pair("padding")) and not node["divisor"]:
            return value.mean((2, 3), keepdim=True)
        return F.avg_pool3d(value, *settings, *rest)

    return _of_images(run)


def _adaptive_average(node: Node) -> Run:
    size = node.pair("size")

    def run(_: int, value: Tensor) -> Tensor:
        if size == (1, 1):
            return value.mean((2, 3), keepdim=True)
        return F.adaptive_avg_pool3d(value, (*size, LANES))

    return _of_images(run)


def _of_images(run: Run) -> Run:
    def checked(images: int, value: Tensor) -> Tensor:
        if value.dim() != 5:
            raise NotLiveError("only pooling of images can be trained live")
        return run(images, value)

    return checked


def _slice(node: Node) -> Run:
    def run(_: int, value: Tensor) -> Tensor:
        start, step = node["start"] % value.shape[node["dim"]], node["step"]
        stop = start + (node["size"] - 1) * step + 1
        return value[(slice(None),) * node["dim"] + (slice(start, stop, step),)]

    return run


def _pad(node: Node) -> Run:
    if node["mode"]:
        raise NotLiveError("only padding with a number can be trained live")

    def run(_: int, value: Tensor) -> Tensor:
        after = (0, 0) * (value.dim() - 1 - node["dim"])
        pads = (*after, node["before"], node["after"])
        return F.pad(value, pads, value=float(node.number("value")))

    return run


def _flatten(node: Node) -> Run:
    end = -2 if node["end"] == -1 else node["end"]  # before the lanes
    return lambda _, value: value.flatten(node["start"], end)


def _reshape(node: Node) -> Run:
    return lambda _, value: value.reshape(len(value), *node.sizes, LANES)


PLAIN: dict[str, Callable[[Node], Run]] = {
    "relu": lambda _: lambda _, value: F.relu(value),
    "add": lambda _: lambda _, one, other: one + other,
    "flatten": _flatten,
    "reshape": _reshape,
    "mean": _mean,
    "avg_pool": _average,
    "adaptive_avg_pool": _adaptive_average,
    "slice": _slice,
    "pad": _pad,
}
