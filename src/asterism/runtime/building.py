"""What every layer's steps are built with: values, in rows or in columns, and who reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.graph.stages import Array, FusedLayer, Shape
from asterism.runtime.cost import Choice
from asterism.runtime.packing import BLOCK
from asterism.runtime.steps import INPUT, OUTPUT, SCRATCH, Buffer, ConstantBuffer, Planned
from asterism.runtime.windows import Indices


class Builder:
    """The steps so far; a value is image by image in `values`, by features in `columns`."""

    def __init__(
        self,
        layers: Sequence[FusedLayer],
        shapes: Sequence[Shape],
        result: int,
        many: bool,
        lanes: int,
    ) -> None:
        self.shapes, self.result, self.many, self.lanes = shapes, result, many, lanes
        self.readers: dict[int, list[FusedLayer]] = {}
        for layer in layers:
            for value in layer.inputs:
                self.readers.setdefault(value, []).append(layer)
        self.steps: list[Planned] = []
        self.values = {0: Buffer(math.prod(shapes[0]), INPUT)}
        self.columns: dict[int, tuple[Buffer, Indices]] = {}
        self.choices: dict[int, Choice] = {}

    def add(self, kernel: str, layer: FusedLayer, source: Buffer, out: Buffer, **rest: Any) -> None:
        """One step more; `rest` are the other fields of `Planned`."""
        self.steps.append(Planned(kernel, source, out, layer, **rest))

    def size(self, value: int) -> int:
        return math.prod(self.shapes[value])

    def seen(self, layer: FusedLayer) -> Shape:
        """The shape in which a layer reads its first input."""
        return self.shapes[layer.node.inputs[0]]

    def out(self, layer: FusedLayer) -> Buffer:
        space = OUTPUT if layer.out == self.result else SCRATCH
        self.values[layer.out] = Buffer(self.size(layer.out), space)
        return self.values[layer.out]

    def numbers(self, numbers: Array) -> Buffer:
        return ConstantBuffer(numbers)

    def scratch(self, size: int) -> Buffer:
        return Buffer(size)

    def constant(self, layer: FusedLayer, numbers: Array) -> None:
        buffer = self.numbers(numbers)
        if layer.out != self.result:
            self.values[layer.out] = buffer
            return
        sizes = [1, buffer.size, buffer.size, 0]
        self.add("COPY_CHUNKS", layer, buffer, self.out(layer), sizes=sizes)

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
            space = OUTPUT if value == self.result else SCRATCH
            self.values[value] = Buffer(self.size(value), space)
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
