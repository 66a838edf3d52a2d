"""What every layer's steps are built with: values, in rows or in columns, and who reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from asterism.graph.operations.shaping import gathering
from asterism.graph.stages import Array, FusedLayer, Shape
from asterism.kernels.library import LANES, SLICES
from asterism.runtime.choice.cost import Choice
from asterism.runtime.layers.packing import BLOCK
from asterism.runtime.layers.windows import Indices
from asterism.runtime.steps import INPUT, OUTPUT, Buffer, ConstantBuffer, Planned


class Ends(NamedTuple):
    """Where a network begins and ends: how many of its values are inputs, and which are results.

    Of each image all inputs lie side by side, and all results.
    """

    inputs: int
    results: tuple[int, ...]

    def sizes(self, shapes: Sequence[Shape]) -> tuple[int, int]:
        """Numbers of an image, in all inputs and in all results."""
        return (
            sum(math.prod(shape) for shape in shapes[: self.inputs]),
            sum(math.prod(shapes[value]) for value in self.results),
        )


class Planning(NamedTuple):
    """What steps are to be found for.

    layers  of the network, in their order
    shapes  of its values
    ends    where it begins and ends
    many    whether it is for blocks of images, or for one at a time
    level   of the kernels
    ranges  of the values, if layers may be in 16 bits
    """

    layers: Sequence[FusedLayer]
    shapes: Sequence[Shape]
    ends: Ends
    many: bool
    level: int
    ranges: Sequence[float] = ()


class Builder:
    """The steps so far; a value is image by image in `values`, by features in `columns`."""

    def __init__(self, planning: Planning) -> None:
        layers, shapes, ends, many, level, self.ranges = planning
        self.shapes, self.ends, self.many = shapes, ends, many
        self.lanes, self.slice = LANES[level], SLICES[level]
        self.readers: dict[int, list[FusedLayer]] = {}
        for layer in layers:
            for value in (*layer.inputs, *layer.added):
                self.readers.setdefault(value, []).append(layer)
        self.steps: list[Planned] = []
        given, made = ends.sizes(shapes)
        inputs = self._side_by_side(range(ends.inputs), INPUT, given)
        self.values = dict(enumerate(inputs))
        self.results = self._side_by_side(ends.results, OUTPUT, made)
        self.columns: dict[int, tuple[Buffer, Indices]] = {}
        self.places: dict[int, Buffer] = {}  # with the channels of a place side by side
        self.choices: dict[int, Choice] = {}

    def add(self, kernel: str, layer: FusedLayer, source: Buffer, out: Buffer, **rest: Any) -> None:
        """One step more; `rest` are the other fields of `Planned`."""
        self.steps.append(Planned(kernel, source, out, layer, **rest))

    def _side_by_side(self, values: Sequence[int], space: int, stride: int) -> list[Buffer]:
        buffers, offset = [], 0
        for value in values:
            buffers.append(Buffer(self.size(value), space, offset=offset, stride=stride))
            offset += self.size(value)
        return buffers

    def size(self, value: int) -> int:
        return math.prod(self.shapes[value])

    def seen(self, layer: FusedLayer) -> Shape:
        """The shape in which a layer reads its first input."""
        return self.shapes[layer.node.inputs[0]]

    def own(self, layer: FusedLayer) -> Shape:
        """The shape of its first node's result, before what was merged into it."""
        return self.shapes[layer.place + self.ends.inputs]

    def out(self, layer: FusedLayer) -> Buffer:
        self.values[layer.out] = self.memory(layer.out)
        return self.values[layer.out]

    def memory(self, value: int) -> Buffer:
        """For a value image by image: where the caller wants it, if it is a result."""
        if value in self.ends.results:
            return self.results[self.ends.results.index(value)]
        return Buffer(self.size(value))

    def numbers(self, numbers: Array) -> Buffer:
        return ConstantBuffer(numbers)

    def scratch(self, size: int) -> Buffer:
        return Buffer(size)

    def constant(self, layer: FusedLayer, numbers: Array) -> None:
        buffer = self.numbers(numbers)
        if layer.out not in self.ends.results:
            self.values[layer.out] = buffer
            return
        sizes = [1, buffer.size, buffer.size, 0]
        self.add("COPY_CHUNKS", layer, buffer, self.out(layer), sizes=sizes)

    def move(self, layer: FusedLayer, places: Indices, filling: float) -> None:
        source = self.rows(layer.inputs[0], layer)
        self.add("GATHER", layer, source, self.out(layer), **gathering(places, filling))

    def in_and_out(self, layer: FusedLayer) -> tuple[Buffer, Buffer]:
        """Input and result of a layer that treats each number alike: columns stay columns."""
        value = layer.inputs[0]
        if value not in self.columns:
            return self.rows(value, layer), self.out(layer)
        source, slots = self.columns[value]
        out = Buffer(source.size, columns=True)
        self.columns[layer.out] = out, slots
        return source, out

    def rows(self, value: int, layer: FusedLayer) -> Buffer:
        """A value image by image."""
        if value not in self.values:
            self.values[value] = self.memory(value)
            if value in self.columns:  # else every weight that reads it was pruned
                source, sizes = self.columns[value][0], [self.size(value)]
                self.add("FROM_COLUMNS", layer, source, self.values[value], sizes=sizes, whole=True)
        return self.values[value]

    def as_columns(self, value: int, layer: FusedLayer, live: Indices) -> tuple[Buffer, Indices]:
        """A value feature by feature, at least the `live`, and where each of them is."""
        if value not in self.columns:
            if 8 * len(live) > self.size(value):  # eight side by side cost no more than one alone
                live = np.arange(self.size(value), dtype=np.int32)
            slots = np.zeros(self.size(value), np.int32)
            slots[live] = np.arange(len(live), dtype=np.int32)
            buffer = Buffer(max(1, len(live)) * BLOCK, columns=True)
            source = self.rows(value, layer)
            sizes = [len(live)]
            self.add("TO_COLUMNS", layer, source, buffer, sizes=sizes, data=(live,), whole=True)
            return buffer, slots
        return self.columns[value]
