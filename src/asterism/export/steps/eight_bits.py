"""The layers of a network of 8 bits: the calls of its C file, and the same calls in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from asterism.errors import InputError
from asterism.export.steps.portable import Recorder
from asterism.export.steps.scales import (
    MOST,
    MOVED,
    Whole,
    before_sum,
    fixed_point,
    narrow,
    scale_of,
)
from asterism.export.steps.step import WORK, Buffer, Integers, Numbers, Step
from asterism.graph.network import Graph
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.activations import Activation
from asterism.graph.operations.pooling import Pooling
from asterism.graph.operations.shaping import Moving
from asterism.graph.stages import FusedLayer, Shape

WEIGHTED = ("conv", "linear")
AVERAGED = ("mean", "avg_pool", "adaptive_avg_pool")
SUM_BITS = 22  # of the factors of a sum: two products of 8 bits with them fit into 32


@dataclass
class Int8Layer:
    """One layer in numpy, on whole numbers: what the C file's function computes.

    out      the value that it makes
    inputs   the values that it reads
    compute  it from these, each a batch
    """

    out: int
    inputs: tuple[int, ...]
    compute: Callable[..., Whole]


class EightBits(Recorder):
    """The calls of the functions for 8 bits; `layers` are the same calls in numpy."""

    def __init__(
        self, graph: Graph, shapes: Sequence[Shape], scales: dict[int, float], least_ram: bool
    ) -> None:
        super().__init__(graph, shapes)
        self.graph, self.scales, self.layers = graph, scales, list[Int8Layer]()
        self.least_ram, self.streams = least_ram, False
        self.given, self.placed = list[Buffer](), list[Buffer]()
        if least_ram:
            self.values[0].space = WORK
            self.given = [self.values[0]]

    def layer(self, layer: FusedLayer) -> None:
        op = layer.node.op
        if layer.added:
            self._weighted(layer._replace(added=(), relu=False), before_sum(self.graph, layer))
            self._sum(layer, (before_sum(self.graph, layer), layer.added[0]), layer.out)
        elif op in WEIGHTED:
            self._weighted(layer, layer.out)
        elif op == "add":
            self._sum(layer, (layer.inputs[0], layer.inputs[1]), layer.inputs[0])
        elif op in AVERAGED:
            self._average(layer)
        elif isinstance(OPERATIONS[op], Activation) and op not in MOVED:
            self._table(layer)
        else:
            self._moved(layer)

    def finish(self) -> list[Step]:
        first = len(self.steps)
        steps = super().finish()
        steps[first:] = [replace(step, function="copy_8") for step in steps[first:]]
        return steps

    def _emitted(self, layer: FusedLayer) -> list[Step]:
        """The calls of a layer for floats, not yet among the steps."""
        first = len(self.steps)
        super().layer(layer)
        found = self.steps[first:]
        del self.steps[first:]
        return found

    def _reference(self, layer: FusedLayer) -> Callable[[Whole], Whole]:
        """The layer's own operation on whole numbers."""
        node, seen, own = layer.node, self.seen(layer), self.shapes[layer.place + self.count]
        given: Any = [None if each is None else each.astype("f8") for each in layer.weights]

        def compute(x: Whole) -> Whole:
            numbers: Any = x.reshape(len(x), *seen).astype(np.float64)
            return OPERATIONS[node.op].numpy(node, [numbers], given, own).astype(np.int64)

        return compute

    def _weighted(self, layer: FusedLayer, made: int) -> None:
        """A layer with weights, as whole numbers; `made` is the value whose scale it has."""
        before, after, scale = (
            self.scales[layer.inputs[0]],
            self.scales[made],
            scale_of(layer.weight),
        )
        weight = np.round(layer.weight / np.float32(scale)).astype(np.float32)
        bias = np.clip(np.round(layer.bias.astype(np.float64) / (scale * before)), -(2**30), 2**30)
        given: list[Any] = [weight, bias]
        whole, (factor, shift) = layer._replace(weights=given), fixed_point(scale * before / after)
        for step in self._emitted(whole):
            tables = (*step.tables[:-1], Integers([int(number) for number in bias]))
            function, scratch = f"{step.function}_8", step.scratch
            if self.least_ram and step.function == "conv":
                function, scratch = "conv_each_8", None
                if self.streams and not self.placed:
                    function = "conv_rows_8"
                    self._overlap(step)
            wide = None if scratch is None else Buffer(4 * scratch.size, wide=True)
            sizes = (*step.sizes, factor, shift)
            self.steps.append(
                replace(step, function=function, sizes=sizes, tables=tables, scratch=wide)
            )
        products = self._reference(whole)

        def compute(x: Whole) -> Whole:
            sums = _halved(products(x)) if layer.pool else products(x)
            return narrow(np.maximum(sums, 0) if layer.relu else sums, factor, shift)

        self.layers.append(Int8Layer(made, layer.inputs[:1], compute))
        self.values[made] = self.values[layer.out]

    def _overlap(self, step: Step) -> None:
        """The input and what the first convolution makes of it, where it has read it."""
        source, out = step.sources[0], step.out
        assert source is not None
        channels, down, _, height, width, pool, _ = step.sizes
        row = channels * (width // pool)
        far = (row * (top + 1) - top * pool * down for top in range(height // pool))
        source.offset = -(-max(0, *far, 0) // 4) * 4
        out.by_rows = True
        self.placed = [source, out]

    def _sum(self, layer: FusedLayer, values: tuple[int, int], home: int) -> None:
        """Two values with scales of their own; `home` has the memory of the first."""
        after = self.scales[layer.out]
        ratios = [self.scales[value] / after for value in values]
        _, shift = fixed_point(max(ratios), SUM_BITS)
        factors = [round(math.ldexp(ratio, shift)) for ratio in ratios]
        one, other = self.rows(home, layer), self.rows(values[1], layer)
        out = one if layer.added else self.out(layer)
        sizes = (out.size, int(layer.relu), *factors, shift)
        alone = one is not other
        self.steps.append(Step("add_8", (one, other), out, sizes=sizes, in_place=alone))

        def compute(x: Whole, y: Whole) -> Whole:
            x, y = x.reshape(len(x), -1), y.reshape(len(y), -1)
            sums = x * factors[0] + y * factors[1]
            return narrow(np.maximum(sums, 0) if layer.relu else sums, 1, shift)

        self.layers.append(Int8Layer(layer.out, values, compute))

    def _average(self, layer: FusedLayer) -> None:
        """A mean, of dimensions or of windows."""
        ratio = self.scales[layer.inputs[0]] / self.scales[layer.out]
        (step,) = self._emitted(layer)
        operation, seen = OPERATIONS[layer.node.op], self.seen(layer)
        if step.function == "mean":
            outer, length, inner = step.sizes
            factor, shift = fixed_point(ratio / length)
            self.steps.append(replace(step, function="mean_8", sizes=(*step.sizes, factor, shift)))
            parts: Whole = np.full(1, factor)

            def sums(x: Whole) -> Whole:
                found: Whole = x.reshape(len(x), outer, length, inner).sum(2)
                return found

        else:
            assert isinstance(operation, Pooling)
            numbers = step.tables[1]
            assert isinstance(numbers, Numbers)
            assert numbers.array is not None
            shares = numbers.array.astype(np.float64).reshape(-1) * ratio
            if not np.isfinite(shares).all():
                raise InputError("--int8 has no mean of a window without numbers")
            _, shift = fixed_point(float(shares.max()))
            parts = np.round(np.ldexp(shares, shift)).astype(np.int64).clip(0, 2**31 - 1)
            tables = (step.tables[0], Integers([int(part) for part in parts]))
            sizes = (*step.sizes[1:], shift)
            self.steps.append(replace(step, function="average_8", sizes=sizes, tables=tables))
            own, bounds = self.shapes[layer.out], step.tables[0]
            assert isinstance(bounds, Integers)

            def sums(x: Whole) -> Whole:
                return _windows(x.reshape(len(x), *seen), bounds.numbers, own)

        def compute(x: Whole) -> Whole:
            found = sums(x)
            return narrow(found.reshape(len(x), -1, len(parts)), parts, shift).reshape(len(x), -1)

        self.layers.append(Int8Layer(layer.out, layer.inputs, compute))

    def _table(self, layer: FusedLayer) -> None:
        """A function of each number, by a table of all results."""
        before, after = self.scales[layer.inputs[0]], self.scales[layer.out]
        operation = OPERATIONS[layer.node.op]
        assert isinstance(operation, Activation)
        given = (np.arange(-MOST, MOST + 1) * before).astype(np.float32)
        with np.errstate(all="ignore"):
            made = np.nan_to_num(np.asarray(operation.of(layer.node, given), np.float64) / after)
        table = np.clip(np.round(made), -MOST, MOST).astype(np.int64)
        source, out = self.in_and_out(layer)
        tables = (Numbers(table.astype(np.float32)),)
        step = Step("look_up_8", (source,), out, sizes=(out.size,), tables=tables, in_place=True)
        self.steps.append(step)
        self.layers.append(Int8Layer(layer.out, layer.inputs, lambda x: table[x + MOST]))

    def _moved(self, layer: FusedLayer) -> None:
        """A ReLU, a largest number, or numbers in another order: scales stay."""
        for step in self._emitted(layer):
            sizes, tables = step.sizes, step.tables
            if step.function == "pool":
                sizes, tables = sizes[1:], tables[:1]
            if step.function == "gather":
                filling = float(np.clip(step.numbers[0] / self.scales[layer.out], -MOST, MOST))
                node = layer.node
                assert step.numbers[0] == 0 or node.op == "pad"
                sizes = (*sizes, round(filling))
                reference = self._moving(layer, round(filling))
            function = f"{step.function}_8"
            self.steps.append(
                replace(step, function=function, sizes=sizes, numbers=(), tables=tables)
            )
        moves = isinstance(OPERATIONS[layer.node.op], Moving)
        compute = reference if moves else self._reference(layer)
        self.layers.append(Int8Layer(layer.out, layer.inputs, compute))

    def _moving(self, layer: FusedLayer, filling: int) -> Callable[[Whole], Whole]:
        operation = OPERATIONS[layer.node.op]
        assert isinstance(operation, Moving)
        places = operation.places(layer.node, self.seen(layer)).reshape(-1)

        def compute(x: Whole) -> Whole:
            return np.where(places < 0, filling, x.reshape(len(x), -1)[:, places])

        return compute


def _halved(sums: Whole) -> Whole:
    """The largest of two by two."""
    sums = sums[..., : sums.shape[-2] // 2 * 2, : sums.shape[-1] // 2 * 2]
    rows = np.maximum(sums[..., ::2, :], sums[..., 1::2, :])
    return np.maximum(rows[..., ::2], rows[..., 1::2])


def _windows(x: Whole, bounds: Sequence[int], shape: Shape) -> Whole:
    """The sum of each window; `bounds` are those of rows and then of columns."""
    x = x.reshape(len(x), x.shape[1], -1, x.shape[-1])
    rows, columns = (1, *shape[1:])[-2:]
    pairs = np.array(bounds, np.int64).reshape(-1, 2)
    found = np.zeros((len(x), x.shape[1], rows, columns), np.int64)
    for i, j in np.ndindex(rows, columns):
        (top, bottom), (left, right) = pairs[i], pairs[rows + j]
        found[:, :, i, j] = x[:, :, top:bottom, left:right].sum((2, 3))
    return found
