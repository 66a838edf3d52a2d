"""Transposed convolutions, and convolutions of three dimensions, weight by weight.

Owns the tables by which one kernel runs both, with work in proportion to the non-zero weights: for
each place of the kernel and each output along an axis, the input that is read.
"""

from __future__ import annotations

import math
from abc import abstractmethod
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
    need,
    settings,
)
from asterism.graph.operations.pooling import channelwise_work
from asterism.graph.stages import Array, Call, FusedLayer, Given, NodeLike, Number, Program, Shape

TAP = np.dtype([("channel", np.int32), ("place", np.int32, 3), ("weight", np.float32)])
_AXES = "dhw"
_SETTINGS = ("padding", "stride", "dilation")
Indices = npt.NDArray[np.int32]


def _triples(default: int, *names: str) -> dict[str, Number]:
    return {f"{name}_{axis}": default for name in names for axis in _AXES}


class Taps(Operation):
    """A convolution whose inputs are found by a table; an image is a volume of depth 1."""

    weights = 2
    kernels = ("CONV_TAPS",)
    modules: tuple[str, ...]  # torch's, by rank

    @abstractmethod
    def by_output(self, node: NodeLike, weight: Array) -> Array:
        """The weight as (outputs, inputs of a group, depth, height, width)."""

    @abstractmethod
    def count(self, node: NodeLike, axis: str, size: int, kernel: int) -> int:
        """How many outputs there are along an axis; MisfitError for wrong settings."""

    @abstractmethod
    def inputs(self, node: NodeLike, axis: str, size: int, kernel: int, out: int) -> Indices:
        """For each place of the kernel and each output the input's index, or −1."""

    def capture(self, call: Call) -> int:
        rank = len(call.shape_of(call.args["weight"])) - 2
        found: dict[str, Number] = {"groups": call.args["groups"]}
        for name in (n for n in (*_SETTINGS, "output_padding") if n in call.args):
            numbers = call.args[name]
            numbers = [numbers] * rank if isinstance(numbers, int) else list(numbers)
            numbers = numbers * rank if len(numbers) == 1 else numbers
            if isinstance(call.args[name], str):
                raise UnsupportedError
            found |= {f"{name}_{axis}": n for axis, n in zip(_AXES[-rank:], numbers, strict=True)}
        return call.layer(self.name, found, call.args["weight"], call.args["bias"])

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        weight, bias = given
        fits = weight is not None and weight.ndim == len(inputs[0]) + 1 and 3 <= weight.ndim <= 5
        need(fits, "its weight is missing or of another rank")
        assert weight is not None
        groups, channels = node["groups"], inputs[0][0]
        divided = groups > 0 and len(weight) % groups == 0 and channels % groups == 0
        need(divided and weight.size > 0, f"weight {weight.shape}, {groups} groups")
        outputs, per_group, *window = self.by_output(node, weight).shape
        need(channels == per_group * groups, f"weight {weight.shape}, {groups} groups")
        need(bias is None or bias.shape == (outputs,), "its bias has another size")
        each = zip(_AXES, _volume(inputs[0][1:]), window, strict=True)
        found = [self.count(node, *axis) for axis in each]
        return (outputs, *found[-(len(inputs[0]) - 1) :])

    def tables(self, node: NodeLike, window: Shape, before: Shape, after: Shape) -> list[Indices]:
        """Those of all axes, for the sizes of the kernel, the input and the result."""
        each = zip(_AXES, _volume(before), window, _volume(after), strict=True)
        return [self.inputs(node, *axis) for axis in each]

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        assert given[0] is not None
        weight, groups, batch = self.by_output(node, given[0]), node["groups"], len(inputs[0])
        x = inputs[0].reshape(batch, groups, weight.shape[1], *_volume(inputs[0].shape[2:]))
        out = np.zeros((batch, groups, len(weight) // groups, *_volume(shape[1:])), np.float32)
        by_group = weight.reshape(groups, -1, *weight.shape[1:])
        tables = self.tables(node, weight.shape[2:], inputs[0].shape[2:], shape[1:])
        for place in np.ndindex(*weight.shape[2:]):
            reads = [table[k] for table, k in zip(tables, place, strict=True)]
            there = [np.flatnonzero(read >= 0) for read in reads]
            found = np.ix_(*(read[at] for read, at in zip(reads, there, strict=True)))
            whole: tuple[Any, ...] = (slice(None),) * 3
            here, seen = by_group[(*whole, *place)], x[(*whole, *found)]
            made = np.einsum("goc,bgcdhw->bgodhw", here, seen, optimize=True)
            out[(*whole, *np.ix_(*there))] += made
        if given[1] is not None:
            out += given[1].reshape(groups, -1, 1, 1, 1)
        return out.reshape(batch, *shape)

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        weight, bias = given
        rank, groups = weight.ndim - 2, node["groups"]
        names = [name for name in (*_SETTINGS, "output_padding") if f"{name}_w" in self.defaults]
        rest = {name: tuple(node[f"{name}_{axis}"] for axis in _AXES[-rank:]) for name in names}
        outputs = len(self.by_output(node, weight.detach().numpy()))
        module = getattr(torch.nn, self.modules[rank - 1])(
            *(shapes[0][0], outputs, tuple(weight.shape[2:])),
            **rest,
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
        node, weight = layer.node, self.by_output(layer.node, layer.weight)
        before, after = _volume(program.seen(layer)[1:]), _volume(program.shapes[layer.out][1:])
        deep, high, wide = self.tables(node, weight.shape[2:], before, after)
        output, channel, *place = np.nonzero(weight)
        taps = np.empty(len(output), TAP)
        group = output // (len(weight) // node["groups"])
        taps["channel"] = (group * weight.shape[1] + channel) * math.prod(before)
        taps["place"] = np.stack(place, 1)
        taps["weight"] = weight[(output, channel, *place)]
        starts = np.searchsorted(output, np.arange(len(weight) + 1)).astype(np.int32)
        phases = self.phases(node)
        table = np.concatenate([deep.ravel(), high.ravel(), _spans(wide, phases).ravel()])
        bias = np.zeros(len(weight), np.float32) if layer.weights[1] is None else layer.weights[1]
        steps = [phases, 1 if phases > 1 else node["stride_w"]]
        sizes = [len(weight), *before, *after, *weight.shape[2:4], *steps]
        source = program.rows(layer.inputs[0], layer)
        row = program.scratch(phases * (after[2] // phases + 1))
        step: dict[str, Any] = {"sizes": sizes, "data": (taps, starts, table, bias)}
        out = program.out(layer)
        step |= {"other": row, "activation": layer.fused}
        program.add("CONV_TAPS", layer, source, out, **step)

    def phases(self, node: NodeLike) -> int:
        """In how many turns of every second, third … number a row of the result is computed."""
        return 1

    def absorb(
        self, layer: FusedLayer, node: NodeLike, given: Given, shape: Shape
    ) -> FusedLayer | None:
        return rectified(layer, node)


def _volume(sizes: Sequence[int]) -> tuple[int, ...]:
    """Depth, height and width of what may have fewer dimensions."""
    return (*(1,) * (3 - len(sizes)), *sizes)


def _spans(table: Indices, phases: int) -> Indices:
    """Of each place of the kernel: its first output, its first input, and how many it has.

    Outputs are counted phase by phase: all of every second, third … follow each other.
    """
    spans = np.zeros((len(table), 3), np.int32)
    for k, reads in enumerate(table):
        there = np.flatnonzero(reads >= 0)
        if len(there):
            first = there[0] % phases * (table.shape[1] // phases + 1) + there[0] // phases
            spans[k] = first, reads[there[0]], len(there)
    return spans


class Conv3d(Taps):
    """A convolution of three dimensions."""

    name, code = "conv3d", 46
    defaults = settings(
        **_triples(0, "padding"), **_triples(1, "stride"), groups=1, **_triples(1, "dilation")
    )
    captures = ("aten.conv3d.default",)
    modules = ("", "", "Conv3d")
    examples = (
        Example((3, 4, 5, 6), {"padding_d": 1, "stride_w": 2, "dilation_h": 2},
                ((4, 3, 3, 2, 3), (4,))),
        Example((4, 3, 5, 4), {"groups": 2, "padding_h": 1}, ((6, 2, 2, 3, 1), None)),
    )  # fmt: skip

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        need(len(inputs[0]) == 4, "channels and three dimensions are needed")
        return super().shape(node, inputs, given)

    def by_output(self, node: NodeLike, weight: Array) -> Array:
        return weight

    def count(self, node: NodeLike, axis: str, size: int, kernel: int) -> int:
        padding, stride, dilation = (node[f"{name}_{axis}"] for name in _SETTINGS)
        need(stride > 0 and padding >= 0 and 0 < dilation <= MAX_SIZE, "its settings")
        reach = size + 2 * padding - dilation * (kernel - 1) - 1
        need(0 <= reach <= MAX_SIZE, "the kernel is larger than the input")
        return reach // stride + 1

    def inputs(self, node: NodeLike, axis: str, size: int, kernel: int, out: int) -> Indices:
        padding, stride, dilation = (node[f"{name}_{axis}"] for name in _SETTINGS)
        at = np.arange(kernel)[:, None] * dilation + np.arange(out) * stride - padding
        return np.where((at >= 0) & (at < size), at, -1).astype(np.int32)

    def absorb(
        self, layer: FusedLayer, node: NodeLike, given: Given, shape: Shape
    ) -> FusedLayer | None:
        if node.op == "batch_norm" and not layer.relu:
            return folded(layer, node, given)
        return rectified(layer, node)


class ConvTranspose(Taps):
    """A transposed convolution of one, two or three dimensions."""

    name, code = "conv_transpose", 45
    defaults = settings(
        **_triples(0, "padding"), **_triples(1, "stride"), groups=1,
        **_triples(1, "dilation"), **_triples(0, "output_padding"),
    )  # fmt: skip
    captures = (
        *("aten.conv_transpose1d.default", "aten.conv_transpose2d.input"),
        "aten.conv_transpose3d.input",
    )
    modules = ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
    examples = (
        Example((3, 5, 4), {"stride_h": 2, "stride_w": 2}, ((3, 4, 2, 2), (4,))),
        Example((4, 5, 4), {"stride_h": 2, "stride_w": 3, "padding_h": 1, "padding_w": 2,
                            "groups": 2, "output_padding_w": 1, "dilation_h": 2},
                ((4, 3, 3, 4), None)),
        Example((3, 7), {"stride_w": 2, "output_padding_w": 1}, ((3, 2, 5), (2,))),
        Example((2, 3, 4, 2), {"stride_d": 2, "padding_w": 1}, ((2, 3, 2, 1, 3), (3,))),
    )  # fmt: skip

    def by_output(self, node: NodeLike, weight: Array) -> Array:
        groups = node["groups"]
        weight = weight.reshape(*weight.shape[:2], *_volume(weight.shape[2:]))
        turned = weight.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2)
        return turned.reshape(-1, *turned.shape[2:])

    def count(self, node: NodeLike, axis: str, size: int, kernel: int) -> int:
        padding, stride, dilation = (node[f"{name}_{axis}"] for name in _SETTINGS)
        more = node[f"output_padding_{axis}"]
        need(0 <= padding <= MAX_SIZE and 0 < stride <= MAX_SIZE, "its settings")
        need(0 < dilation <= MAX_SIZE and 0 <= more < max(stride, dilation), "its settings")
        found = (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1
        need(size > 0 and 0 < found <= MAX_SIZE, "no output is left, or too many")
        return found

    def inputs(self, node: NodeLike, axis: str, size: int, kernel: int, out: int) -> Indices:
        padding, stride, dilation = (node[f"{name}_{axis}"] for name in _SETTINGS)
        at = np.arange(out) + padding - np.arange(kernel)[:, None] * dilation
        here = (at % stride == 0) & (at >= 0) & (at < size * stride)
        return np.where(here, at // stride, -1).astype(np.int32)

    def phases(self, node: NodeLike) -> int:
        return node["stride_w"]


OPERATIONS = (Conv3d(), ConvTranspose())
