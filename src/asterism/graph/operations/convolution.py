"""Convolutions of one and two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from asterism.graph.operations.activations import rectified
from asterism.graph.operations.linear import with_weights
from asterism.graph.operations.norms import folded
from asterism.graph.operations.operation import (
    MAX_SIZE,
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
from asterism.graph.operations.pooling import channelwise_work, halves
from asterism.graph.stages import Array, Call, FusedLayer, Given, Mask, NodeLike, Program, Shape

_PAIRS = ("padding", "stride", "dilation")


class Conv(Operation):
    """A signal of one dimension is an image of height 1; it runs by runtime/layers/convolutions."""

    name, code = "conv", 1
    defaults = settings(
        **pairs(0, "padding"), **pairs(1, "stride"), groups=1, **pairs(1, "dilation")
    )
    weights = 2
    captures = tuple(f"aten.conv{n}d.{form}" for n in (1, 2) for form in ("default", "padding"))
    kernels = (
        *("PACK", "CONV_SPARSE", "CONV_DENSE", "CONV_ROWS", "CONV_COLUMNS"),
        *("SPREAD", "CONV_PLANES", "DENSE_PLANES"),
        *("TURN", "DENSE_PLACES", "DEPTHWISE_PLACES"),
    )
    examples = (
        Example((3, 9, 11), {"padding_h": 1, "stride_w": 2}, ((4, 3, 3, 2), (4,))),
        Example((4, 9, 11), {"groups": 2, "dilation_h": 2}, ((6, 2, 3, 3), None)),
        Example((3, 17), {"padding_w": 2, "stride_w": 3}, ((5, 3, 4), (5,))),
    )

    def capture(self, call: Call) -> int:
        kernel = call.shape_of(call.args["weight"])[2:]
        rank, padding = len(kernel), call.args["padding"]
        dilation = list(call.args["dilation"]) * (rank // len(call.args["dilation"]))
        if isinstance(padding, str):
            padding = 0 if padding == "valid" else _same_padding(kernel, dilation)
        settings = {
            **captured_pair("padding", padding, rank),
            **captured_pair("stride", call.args["stride"], rank),
            **captured_pair("dilation", dilation, rank),
            "groups": call.args["groups"],
        }
        return call.layer("conv", settings, call.args["weight"], call.args["bias"])

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        weight, bias = given
        fits = weight is not None and weight.ndim == len(inputs[0]) + 1
        need(fits, "its weight is missing or of another rank")
        assert weight is not None
        channels, *sizes = image(inputs[0])
        outputs, per_group, *window = by_place(weight).shape
        groups = node["groups"]
        need(
            groups > 0 and channels == per_group * groups, f"weight {weight.shape}, {groups} groups"
        )
        need(outputs % groups == 0, f"{outputs} outputs in {groups} groups")
        need(bias is None or bias.shape == (outputs,), "its bias has another size")
        found = [_count(node, *each) for each in zip("hw", sizes, window, strict=True)]
        return like_image(inputs[0], outputs, *found)

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        assert given[0] is not None
        weight, groups = by_place(given[0]), node["groups"]
        batch, outputs = len(inputs[0]), len(weight)
        _, height, width = image(shape)
        x = inputs[0].reshape(batch, *image(inputs[0].shape[1:]))
        (ph, pw), (sh, sw), (dh, dw) = (node.pair(name) for name in _PAIRS)
        x = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
        out = np.zeros((batch, groups, outputs // groups, height * width), np.float32)
        for i, j in np.ndindex(*weight.shape[2:]):
            seen = x[:, :, i * dh : i * dh + (height - 1) * sh + 1 : sh]
            seen = seen[:, :, :, j * dw : j * dw + (width - 1) * sw + 1 : sw]
            columns = seen.reshape(batch, groups, weight.shape[1], height * width)
            here = weight[:, :, i, j].reshape(1, groups, outputs // groups, weight.shape[1])
            out += here @ columns
        if given[1] is not None:
            out += given[1].reshape(groups, -1, 1)
        return out.reshape(batch, *shape)

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        weight, bias = given
        rank, groups = weight.ndim - 2, node["groups"]
        padding, stride, dilation = (node.pair(name)[2 - rank :] for name in _PAIRS)
        make = torch.nn.Conv1d if rank == 1 else torch.nn.Conv2d
        module = make(
            *(weight.shape[1] * groups, weight.shape[0], tuple(weight.shape[2:]), stride, padding),
            dilation=dilation,
            groups=groups,
            bias=bias is not None,
            device="meta",
        )
        return with_weights(torch, module, weight, bias)

    def work(
        self, node: NodeLike, inputs: Sequence[Shape], nonzeros: Sequence[int | None], shape: Shape
    ) -> int:
        return channelwise_work(inputs, nonzeros, shape)

    def emit(self, program: Program, layer: FusedLayer) -> None:
        program.conv(layer)

    def absorb(
        self, layer: FusedLayer, node: NodeLike, given: Given, shape: Shape
    ) -> FusedLayer | None:
        if node.op == "batch_norm" and not layer.relu and not layer.pool and not layer.added:
            return folded(layer, node, given)
        if halves(node) and not layer.pool and not layer.added:
            window, size = by_place(layer.weight).shape[2:], shape[1:]
            fits = len(size) == 2 and min(size) > 1 and window != (1, 1)
            return layer._replace(pool=True) if fits else None
        return rectified(layer, node)

    def read(self, layer: FusedLayer, needed: Mask, shape: Shape) -> Mask:
        channels = np.zeros(shape[0], bool)
        channels[live_inputs(layer)] = True
        return np.broadcast_to(channels.reshape(-1, *[1] * (len(shape) - 1)), shape)


def by_place(weight: Array) -> Array:
    """A convolution's weight as (outputs, inputs of a group, height, width)."""
    return weight[:, :, None] if weight.ndim == 3 else weight


def live_outputs(layer: FusedLayer) -> npt.NDArray[np.intp]:
    """The output channels that anything reads."""
    assert layer.needed is not None
    return np.flatnonzero(layer.needed.reshape(len(layer.needed), -1).any(1))


def live_inputs(layer: FusedLayer) -> npt.NDArray[np.intp]:
    """The input channels of a convolution that its needed outputs have a weight for."""
    outputs = live_outputs(layer)
    weight = layer.weight
    group = outputs // max(1, len(weight) // layer.node["groups"])
    used = (weight[outputs] != 0).any(tuple(range(2, weight.ndim)))
    output, channel = np.nonzero(used)
    live = np.zeros(weight.shape[1] * layer.node["groups"], bool)
    # A weight counts its channels from the first of its group.
    live[channel + group[output] * weight.shape[1]] = True
    return np.flatnonzero(live)  # np.unique would import numpy.ma


def _same_padding(kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Torch's "same", where it is the same on both sides."""
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    if any(size % 2 for size in reach):
        raise UnsupportedError
    return [size // 2 for size in reach]


def _count(node: NodeLike, axis: str, size: int, kernel: int) -> int:
    """How many outputs there are along an axis."""
    padding, stride, dilation = (node[f"{name}_{axis}"] for name in _PAIRS)
    need(stride > 0 and padding >= 0 and dilation > 0 and kernel > 0, "its settings")
    reach = size + 2 * padding - dilation * (kernel - 1) - 1
    need(0 <= reach <= MAX_SIZE and dilation <= MAX_SIZE, "the kernel is larger than the input")
    return reach // stride + 1


OPERATIONS = (Conv(),)
