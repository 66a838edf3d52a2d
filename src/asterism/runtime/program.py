"""From layers to the steps that the kernels run, and where in the scratch memory values lie.

A network has two programs: one for single images, and one for blocks of them, in which fully
connected layers hold each feature of 32 images side by side ("columns").
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

import asterism.runtime.cost as cost
import asterism.runtime.packing as packing
from asterism.runtime.library import ACTIVATIONS, OPERATIONS, Operand, Step
from asterism.runtime.lowering import Layer
from asterism.runtime.packing import BLOCK, Data, Indices, Window
from asterism.runtime.reference import scale_and_shift
from asterism.runtime.shapes import Shape, image
from asterism.runtime.windows import find

SCRATCH, INPUT, OUTPUT = 0, 1, 2
SLACK = 16  # floats after each value, which a vector may read but nobody uses


@dataclass(eq=False)
class Buffer:
    """Memory of one value: for an image, or, as columns, for a whole block of them."""

    size: int
    space: int = SCRATCH
    columns: bool = False
    offset: int = 0
    stride: int = 0


@dataclass(eq=False)
class Planned:
    """A step before its operands have their places."""

    operation: str
    source: Buffer
    out: Buffer
    layer: Layer
    other: Buffer | None = None
    sizes: Sequence[int] = ()
    data: Data = ()
    whole: bool = False
    activation: str = "none"
    a: float = 0.0
    b: float = 0.0

    @property
    def buffers(self) -> list[Buffer]:
        return [self.source, self.out, *([self.other] if self.other else [])]


@dataclass(eq=False)
class Plan:
    """The steps, and the floats of scratch that they need."""

    steps: list[Planned]
    scratch: int
    choices: dict[int, cost.Choice] = field(default_factory=dict)

    def table(self) -> ctypes.Array[Step]:
        table = (Step * len(self.steps))()
        for row, step in zip(table, self.steps, strict=True):
            row.operation = OPERATIONS.index(step.operation)
            row.whole_block = step.whole
            row.activation = ACTIVATIONS.index(step.activation)
            row.a, row.b = step.a, step.b
            row.source, row.out = _operand(step.source), _operand(step.out)
            row.other = _operand(step.other or step.source)
            row.size[: len(step.sizes)] = [int(size) for size in step.sizes]
            row.data[: len(step.data)] = [array.ctypes.data for array in step.data]
        return table


def _operand(buffer: Buffer) -> Operand:
    return Operand(buffer.space, buffer.offset, buffer.stride)


def plan(layers: list[Layer], shapes: Sequence[Shape], result: int, many: bool, lanes: int) -> Plan:
    """The steps of a network for single images, or for blocks, with `lanes` floats in a vector."""
    builder = _Builder(layers, shapes, result, many, lanes)
    for layer in layers:
        builder.emit(layer)
    return Plan(builder.finish(), _place(builder.steps), builder.choices)


class _Builder:
    def __init__(
        self, layers: Sequence[Layer], shapes: Sequence[Shape], result: int, many: bool, lanes: int
    ) -> None:
        self.shapes, self.result, self.many, self.lanes = shapes, result, many, lanes
        self.readers: dict[int, list[Layer]] = {}
        for layer in layers:
            for value in layer.inputs:
                self.readers.setdefault(value, []).append(layer)
        self.steps: list[Planned] = []
        self.values = {0: Buffer(math.prod(shapes[0]), INPUT)}
        self.columns: dict[int, tuple[Buffer, Indices]] = {}
        self.packed: dict[int, Buffer] = {}  # values that their only reader finds packed already
        self.choices: dict[int, cost.Choice] = {}

    def add(
        self, operation: str, layer: Layer, source: Buffer, out: Buffer, **rest: object
    ) -> None:
        self.steps.append(Planned(operation, source, out, layer, **rest))  # type: ignore[arg-type]

    def size(self, value: int) -> int:
        return math.prod(self.shapes[value])

    def seen(self, layer: Layer) -> Shape:
        """The shape in which a layer reads its first input."""
        return self.shapes[layer.node.inputs[0]]

    def out(self, layer: Layer) -> Buffer:
        space = OUTPUT if layer.out == self.result else SCRATCH
        self.values[layer.out] = Buffer(self.size(layer.out), space)
        return self.values[layer.out]

    def rows(self, value: int, layer: Layer) -> Buffer:
        """A value image by image."""
        if value not in self.values:
            space = OUTPUT if value == self.result else SCRATCH
            self.values[value] = Buffer(self.size(value), space)
            if value in self.columns:  # else every weight that reads it was pruned
                source, sizes = self.columns[value][0], [self.size(value)]
                self.add("FROM_COLUMNS", layer, source, self.values[value], sizes=sizes, whole=True)
        return self.values[value]

    def as_columns(self, value: int, layer: Layer, live: Indices) -> tuple[Buffer, Indices]:
        """A value feature by feature, at least the `live`, and where each of them is."""
        if value not in self.columns:
            slots = np.zeros(self.size(value), np.int32)
            slots[live] = np.arange(len(live), dtype=np.int32)
            buffer = Buffer(max(1, len(live)) * BLOCK, columns=True)
            source = self.rows(value, layer)
            sizes = [len(live)]
            self.add("TO_COLUMNS", layer, source, buffer, sizes=sizes, data=(live,), whole=True)
            return buffer, slots
        return self.columns[value]

    def emit(self, layer: Layer) -> None:
        op = layer.node.op
        if op == "linear":
            self.linear(layer)
        elif op == "conv":
            self.conv(layer)
        elif "pool" in op:
            self.pool(layer)
        elif op in _ACTIVATIONS:
            self.activation(layer)
        elif op in _OF_TWO:
            self.both(_OF_TWO[op], layer)
        else:
            getattr(self, op)(layer)

    def finish(self) -> list[Planned]:
        last = self.steps[-1].layer if self.steps else None
        if last is not None and self.result != 0:
            self.rows(self.result, last)
        return self.steps

    def linear(self, layer: Layer) -> None:
        value, relu = layer.inputs[0], "relu" if layer.relu else "none"
        features, outputs = self.seen(layer)[-1], self.shapes[layer.out][-1]
        rows = self.size(layer.out) // outputs
        choice = self.choices[layer.place] = cost.linear(layer, self.many and rows == 1, rows)
        if not choice.sparse:
            sizes, data = [rows, features, outputs], packing.fc_dense(layer)
            whole = self.many and rows == 1
            source = self.rows(value, layer)
            out = self.out(layer)
            self.add(
                "FC_DENSE", layer, source, out, sizes=sizes, data=data, whole=whole, activation=relu
            )
        elif self.many and rows == 1:
            live = np.flatnonzero((layer.weight != 0).any(0)).astype(np.int32)
            source, slots = self.as_columns(value, layer, live)
            data = packing.fc_sparse(layer, slots)
            out = Buffer(outputs * BLOCK, columns=True)
            self.columns[layer.out] = out, np.arange(outputs, dtype=np.int32)
            sizes = [len(data[2])]
            self.add(
                "FC_SPARSE", layer, source, out, sizes=sizes, data=data, whole=True, activation=relu
            )
        else:
            data = packing.fc_sparse_one(layer)
            sizes = [rows, features, outputs, len(data[3]) // 8]
            source = self.rows(value, layer)
            self.add(
                "FC_SPARSE_ONE",
                layer,
                source,
                self.out(layer),
                sizes=sizes,
                data=data,
                activation=relu,
            )

    def choose(self, layer: Layer) -> tuple[cost.Choice, Window]:
        """A convolution's kernel, and how it reads its input."""
        at = packing.window(layer, self.seen(layer), self.shapes[layer.place + 1])
        rows = packing.by_rows(at) if self.lanes == 16 else None
        choice = cost.conv(layer, at, rows, self.turned(layer), self.lanes)
        return choice, rows if rows is not None and choice.kernel == "rows" else at

    def conv(self, layer: Layer) -> None:
        choice, at = self.choose(layer)
        self.choices[layer.place] = choice
        if choice.kernel == "columns":
            self.conv_columns(layer)
            return
        if choice.kernel == "rows":
            self.conv_rows(layer, at)
            return
        packed = self.pack(layer, at)
        data = packing.conv_sparse(layer, at) if choice.sparse else packing.conv_dense(layer, at)
        height, width = at.out
        if layer.pool:
            _, *pooled = image(self.shapes[layer.out])
            units, width, plane = height // 2 * 2, pooled[1], pooled[0] * pooled[1]
        else:
            units, plane = at.strips if at.flat else height, height * width
        steps = (0, 8) if at.flat else (8, width)
        channels = len(data[2]) if choice.sparse else len(data[2]) // 4
        strips = 1 if at.flat else at.strips
        sizes = [channels, units, strips, at.line, at.strip_pitch, width, plane, *steps]
        sizes += [int(layer.pool), int(at.flat), at.tile]
        operation = "CONV_SPARSE" if choice.sparse else "CONV_DENSE"
        relu = "relu" if layer.relu else "none"
        self.add(operation, layer, packed, self.out(layer), sizes=sizes, data=data, activation=relu)

    def turned(self, layer: Layer) -> int | None:
        """Numbers to turn into columns and back for a convolution on them; None if it cannot."""
        if (
            not self.many
            or layer.node.pair("padding") != (0, 0)
            or layer.node.pair("stride")[1] > 2
        ):
            return None
        there = 0 if layer.inputs[0] in self.columns else self.size(layer.inputs[0])
        readers = self.readers.get(layer.out, [])
        stays = readers and all(reader.node.op in ("linear", "conv") for reader in readers)
        return there + (0 if stays else self.size(layer.out))

    def conv_columns(self, layer: Layer) -> None:
        channels, *size = image(self.seen(layer))
        live = packing.features(layer, size[0] * size[1])
        source, slots = self.as_columns(layer.inputs[0], layer, live)
        data = packing.conv_columns(layer, slots.reshape(channels, *size))
        _, *conv = image(self.shapes[layer.place + 1])
        _, *out = image(self.shapes[layer.out])
        if layer.pool:
            conv = [conv[0] // 2 * 2, conv[1] // 2 * 2]
        down, along = layer.node.pair("stride")
        sizes = [len(data[2]), *conv, along * BLOCK, down * size[1] * BLOCK]
        sizes += [out[1], out[0] * out[1], layer.pool]
        buffer = Buffer(self.size(layer.out) * BLOCK, columns=True)
        self.columns[layer.out] = buffer, np.arange(self.size(layer.out), dtype=np.int32)
        self.add(
            "CONV_COLUMNS",
            layer,
            source,
            buffer,
            sizes=sizes,
            data=data,
            whole=True,
            activation="relu" if layer.relu else "none",
        )

    def conv_rows(self, layer: Layer, at: Window) -> None:
        parts = packing.parts(layer, at)
        packed, data = self.pack(layer, at), packing.conv_rows(layer, at, parts)
        height, width = at.out
        _, *out = image(self.shapes[layer.out])
        if layer.pool:
            height = height // 2 * 2
        sizes = [len(data[2]), height, at.strips, at.line, at.strip_pitch, width]
        after = self.packed_after(layer, at)
        if after is None:
            result, pitches, around = self.out(layer), [out[1], out[0] * out[1]], [0, 0]
        else:
            result = self.packed[layer.out] = Buffer(after.packed)
            pitches = [after.line, after.plane]
            around = [after.padding[0], after.rows - after.padding[0] - height]
            data = (*data[:2], np.searchsorted(after.channels, data[2]).astype(np.int32), data[3])
        sizes += [*pitches, at.step, at.left, at.right, at.left + at.left % 2, layer.pool]
        relu = "relu" if layer.relu else "none"
        sums = Buffer(len(data[2]) * packing.SUMS if parts > 1 else 1)
        self.add(
            "CONV_ROWS",
            layer,
            packed,
            result,
            other=sums,
            sizes=[*sizes, parts, *around],
            data=data,
            activation=relu,
        )

    def packed_after(self, layer: Layer, at: Window) -> Window | None:
        """The window of the layer that reads this one's result, if the result may lie as packed."""
        readers = self.readers.get(layer.out, [])
        if layer.pool or at.strips > 1 or layer.out == self.result or len(readers) != 1:
            return None
        reader = readers[0]
        if reader.node.op != "conv" or self.seen(reader) != self.shapes[layer.out]:
            return None
        choice, after = self.choose(reader)
        same = choice.kernel == "rows" and after.strips == 1 and after.line == at.line
        return after if same and after.stride == (1, 1) else None

    def pack(self, layer: Layer, at: Window) -> Buffer:
        if layer.inputs[0] in self.packed:
            return self.packed[layer.inputs[0]]
        sizes = [len(at.channels), *at.size, *at.padding, *at.stride, at.rows, at.strips, at.line]
        sizes += [*at.phases, at.step, self.size(layer.inputs[0])]
        packed = Buffer(max(at.packed, 1))
        source = self.rows(layer.inputs[0], layer)
        self.add("PACK", layer, source, packed, sizes=sizes, data=(at.channels,))
        return packed

    def pool(self, layer: Layer) -> None:
        channels, *size = image(self.seen(layer))
        _, *out = image(self.shapes[layer.out])
        found = find(layer.node, (size[0], size[1]), (out[0], out[1]))
        data = (np.concatenate([found.rows.ravel(), found.columns.ravel()]), found.factor)
        operation = "POOL_MAX" if "max" in layer.node.op else "POOL_AVERAGE"
        source = self.rows(layer.inputs[0], layer)
        sizes = [channels, *size, *out, *found.dilation]
        self.add(operation, layer, source, self.out(layer), sizes=sizes, data=data)

    def activation(self, layer: Layer) -> None:
        name, (first, second) = layer.node.op, _ACTIVATIONS[layer.node.op]
        a = float(layer.node.number(first)) if first else 0.0
        b = float(layer.node.number(second)) if second else 0.0
        name = "gelu_tanh" if name == "gelu" and layer.node["tanh"] else name
        value = layer.inputs[0]
        if value in self.columns:
            source, slots = self.columns[value]
            out = Buffer(source.size, columns=True)
            self.columns[layer.out] = out, slots
        else:
            source, out = self.rows(value, layer), self.out(layer)
        self.add(
            "ACTIVATE",
            layer,
            source,
            out,
            sizes=[out.size],
            whole=out.columns,
            activation=name,
            a=a,
            b=b,
        )

    def both(self, operation: str, layer: Layer) -> None:
        source, other = (self.rows(value, layer) for value in layer.inputs)
        relu = "relu" if layer.relu else "none"
        out = self.out(layer)
        self.add(operation, layer, source, out, other=other, sizes=[out.size], activation=relu)

    def batch_norm(self, layer: Layer) -> None:
        data = scale_and_shift(layer.node, layer.weights)
        source, channels = self.rows(layer.inputs[0], layer), self.shapes[layer.out][0]
        sizes = [channels, self.size(layer.out) // channels]
        self.add("SCALE", layer, source, self.out(layer), sizes=sizes, data=data)

    def layer_norm(self, layer: Layer) -> None:
        length = math.prod(self.shapes[layer.out][-layer.node["rank"] :])
        plain = (np.ones(length, np.float32), np.zeros(length, np.float32))
        data = tuple(d if w is None else w for w, d in zip(layer.weights, plain, strict=True))
        sizes = [self.size(layer.out) // length, length]
        source, eps = self.rows(layer.inputs[0], layer), float(layer.node.number("eps"))
        self.add("LAYER_NORM", layer, source, self.out(layer), sizes=sizes, data=data, a=eps)

    def softmax(self, layer: Layer) -> None:
        shape = self.shapes[layer.out]
        axis = layer.node["dim"] + len(shape)
        sizes = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
        self.add("SOFTMAX", layer, self.rows(layer.inputs[0], layer), self.out(layer), sizes=sizes)

    def permute(self, layer: Layer) -> None:
        shape = self.seen(layer)
        places = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        moved = np.ascontiguousarray(places.transpose([dim - 1 for dim in layer.node.sizes]))
        source = self.rows(layer.inputs[0], layer)
        self.add("GATHER", layer, source, self.out(layer), sizes=[moved.size], data=(moved,))

    def cat(self, layer: Layer) -> None:
        axis, done = layer.node["dim"] - 1, 0
        whole = math.prod(self.shapes[layer.out][axis:])
        sources = [self.rows(value, layer) for value in layer.inputs]
        out = self.out(layer)
        for value, source in zip(layer.node.inputs, sources, strict=True):
            part = math.prod(self.shapes[value][axis:])
            sizes = [self.size(value) // part, part, whole, done]
            self.add("COPY_CHUNKS", layer, source, out, sizes=sizes)
            done += part


_OF_TWO = {"add": "ADD", "mul": "MULTIPLY"}
_ACTIVATIONS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(["relu", "gelu", "silu", "sigmoid", "tanh"], ("", "")),
    "leaky_relu": ("slope", ""),
    "clamp": ("low", "high"),
}


def _place(steps: list[Planned]) -> int:
    """Gives every buffer its offset and stride; the scratch that all need together.

    A value that leaves its group of image-wise steps is kept for every image of a block.
    """
    group, groups = 0, []
    for i, step in enumerate(steps):
        if i and (step.whole or steps[i - 1].whole):
            group += 1
        groups.append(group)
    spans: dict[int, tuple[Buffer, list[int]]] = {}
    for i, step in enumerate(steps):
        for buffer in step.buffers:
            spans.setdefault(id(buffer), (buffer, []))[1].append(i)
    taken: list[tuple[int, int, int, int]] = []  # first step, last step, begin, end
    scratch = 0
    for buffer, used in sorted(spans.values(), key=lambda span: span[1][0]):
        inside = len({groups[i] for i in used}) == 1 and not any(steps[i].whole for i in used)
        if buffer.space != SCRATCH:
            buffer.stride = buffer.size
            continue
        if not inside and not buffer.columns:
            buffer.stride = buffer.size
        first, last = min(used), max(used)
        if not inside:
            first, last = groups.index(groups[first]), _last(groups, groups[last])
        size = buffer.size if inside or buffer.columns else buffer.size * BLOCK
        size = -(-(size + SLACK) // 16) * 16
        begin = 0
        for _, _, low, high in sorted(
            (span for span in taken if span[0] <= last and span[1] >= first), key=lambda s: s[2]
        ):
            if begin + size <= low:
                break
            begin = max(begin, high)
        buffer.offset = begin
        taken.append((first, last, begin, begin + size))
        scratch = max(scratch, begin + size)
    return scratch


def _last(groups: list[int], group: int) -> int:
    return len(groups) - 1 - groups[::-1].index(group)
