"""From a graph and its weights to the calls that compute it, for one example."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from asterism.errors import InputError
from asterism.export.steps.attend import attention
from asterism.export.steps.memory import place
from asterism.export.steps.step import INPUT, OUTPUT, Buffer, Numbers, Portable, Step
from asterism.export.steps.translate import RULES
from asterism.export.steps.weighted import convolution, linear, recurrent, tapped, with_frame
from asterism.graph.network import Graph
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.images.taps import Taps
from asterism.graph.operations.operation import image
from asterism.graph.operations.sequences.attention import Attention
from asterism.graph.operations.sequences.recurrent import Recurrent
from asterism.graph.operations.shaping import gathering
from asterism.graph.shapes import infer
from asterism.graph.stages import Array, FusedLayer, Shape
from asterism.runtime.lowering import lower, memory


def portable(graph: Graph, weights: Sequence[Array], speed: bool = False) -> Portable:
    """The calls of a network, and the workspace that they need.

    InputError names the operations that have no function here, before anything is written.

    graph    the network
    weights  as the graph counts them
    speed    whether convolutions read a copy of their input with its padding: it takes more memory,
             and then no row has ends to look after
    """
    shapes = infer(graph, weights)
    if not all(math.prod(shape) for shape in shapes):
        raise InputError("the network has a value without numbers: it cannot be exported")
    layers = lower(graph, shapes, weights)
    _refuse_unknown(layers)
    recorder = Recorder(graph, shapes, speed)
    for layer in layers:
        recorder.layer(layer)
    steps = recorder.finish()
    outputs = [shapes[value] for value in graph.outputs]
    inputs = [each.shape for each in graph.inputs]
    integer = [each.integer for each in graph.inputs]
    kept = sum(int(np.count_nonzero(weight)) for weight in weights if weight.ndim > 1)
    return Portable(steps, inputs, outputs, place(steps), integer, kept)


OWN = {"PACK", "CONV_SPARSE", "CONV_DENSE", "CONV_ROWS", "CONV_COLUMNS", "CONV_TAPS", "KEYS"}
OWN |= {"FC_SPARSE_ONE", "FC_SPARSE", "FC_SPARSE_ROWS", "FC_DENSE", "TO_COLUMNS", "FROM_COLUMNS"}
OWN |= {"ATTEND", "LSTM", "GRU", "SPREAD", "CONV_PLANES", "DENSE_PLANES"}
OWN |= {"TURN", "DENSE_PLACES", "DEPTHWISE_PLACES"}


def _refuse_unknown(layers: Sequence[FusedLayer]) -> None:
    names = dict.fromkeys(layer.node.op for layer in layers)
    known = OWN | RULES.keys()
    missing = [name for name in names if not set(OPERATIONS[name].kernels) <= known]
    missing += [name for name in names if not OPERATIONS[name].compiled]
    if missing:
        raise InputError(f"there is no export of {', '.join(missing)}: use the runtime instead")


class Recorder:
    """The calls so far: what operations add their steps to, in the place of the runtime's program.

    shapes  of all values of the graph, by their numbers
    speed   as for `portable`
    """

    def __init__(self, graph: Graph, shapes: Sequence[Shape], speed: bool = False) -> None:
        self.shapes, self.count, self.speed = shapes, len(graph.inputs), speed
        self.steps: list[Step] = []
        self.values = dict(enumerate(self._side_by_side(range(self.count), INPUT)))
        roots = memory(graph)
        self.results = [roots[value] for value in graph.outputs]
        self.wanted = self._side_by_side(self.results, OUTPUT)

    def _side_by_side(self, values: Sequence[int], space: str) -> list[Buffer]:
        buffers, offset = [], 0
        for value in values:
            buffers.append(Buffer(self.size(value), space, offset))
            offset += self.size(value)
        return buffers

    def layer(self, layer: FusedLayer) -> None:
        """All calls of a layer."""
        operation = OPERATIONS[layer.node.op]
        if layer.added:
            self.layer(layer._replace(added=(), relu=False))
            made, other = self.values[layer.out], self.rows(layer.added[0], layer)
            self.add("ADD", layer, made, made, other=other, activation=layer.fused)
        elif isinstance(operation, Attention):
            sources = [self.rows(value, layer) for value in layer.inputs]
            shapes = [self.shapes[value] for value in layer.node.inputs]
            self.steps.append(attention(layer, sources, self.out(layer), shapes, operation))
        elif isinstance(operation, Taps):
            source = self.rows(layer.inputs[0], layer)
            ends = self.seen(layer), self.shapes[layer.out]
            self.steps.append(tapped(layer, source, self.out(layer), *ends))
        else:
            operation.emit(self, layer)

    def finish(self) -> list[Step]:
        """The calls, with those that bring results to where the caller wants them."""
        for value, wanted in zip(self.results, self.wanted, strict=True):
            found = self.values[value]
            if found is not wanted:  # an input, or a result for the second time
                self.steps.append(_copy(found, wanted))
        return self.steps

    # ------------------------------------------------------------------ what operations call

    def add(self, kernel: str, layer: FusedLayer, source: Buffer, out: Buffer, **rest: Any) -> None:
        given = {"activation": "none", "data": (), "a": 0.0, "b": 0.0, **rest}
        self.steps += RULES[kernel](source=source, out=out, **given)

    def size(self, value: int) -> int:
        return math.prod(self.shapes[value])

    def seen(self, layer: FusedLayer) -> Shape:
        return self.shapes[layer.node.inputs[0]]

    def rows(self, value: int, layer: FusedLayer) -> Buffer:
        # A value that is not there is one that every weight which would read it has been pruned of.
        return self.values[value] if value in self.values else self._made(value)

    def channels(self, value: int, layer: FusedLayer) -> tuple[Buffer, tuple[int, int, int]]:
        _, height, width = image(self.seen(layer))
        return self.rows(value, layer), (width, height * width, 0)

    def by_place(self, value: int, layer: FusedLayer) -> None:
        return None

    def out(self, layer: FusedLayer) -> Buffer:
        return self._made(layer.out)

    def _made(self, value: int) -> Buffer:
        first = self.wanted[self.results.index(value)] if value in self.results else None
        self.values[value] = first or Buffer(self.size(value))
        return self.values[value]

    def scratch(self, size: int) -> Buffer:
        return Buffer(size)

    def numbers(self, numbers: Array) -> Buffer:
        out = Buffer(numbers.size)
        self._unpack(numbers, out)
        return out

    def constant(self, layer: FusedLayer, numbers: Array) -> None:
        self._unpack(numbers, self.out(layer))

    def _unpack(self, numbers: Array, out: Buffer) -> None:
        self.steps.append(Step("unpack", (), out, sizes=(out.size,), tables=(Numbers(numbers),)))

    def in_and_out(self, layer: FusedLayer) -> tuple[Buffer, Buffer]:
        return self.rows(layer.inputs[0], layer), self.out(layer)

    def move(self, layer: FusedLayer, places: npt.NDArray[np.int32], filling: float) -> None:
        source = self.rows(layer.inputs[0], layer)
        self.add("GATHER", layer, source, self.out(layer), **gathering(places, filling))

    def conv(self, layer: FusedLayer) -> None:
        source, own = self.rows(layer.inputs[0], layer), self.shapes[layer.place + self.count]
        seen, padding = self.seen(layer), layer.node.pair("padding")
        if self.speed and padding != (0, 0):
            framed, seen = with_frame(source, seen, padding)
            self.steps.append(framed)
            source, padding = framed.out, (0, 0)
        self.steps.append(convolution(layer, source, self.out(layer), (seen, own), padding))

    def linear(self, layer: FusedLayer) -> None:
        source = self.rows(layer.inputs[0], layer)
        self.steps.append(linear(layer, source, self.out(layer), self.seen(layer)[-1]))

    def recurrent(self, layer: FusedLayer) -> None:
        operation = OPERATIONS[layer.node.op]
        assert isinstance(operation, Recurrent)
        sources = [self.rows(value, layer) for value in layer.inputs]
        out, steps = self.out(layer), self.seen(layer)[0]
        self.steps += recurrent(layer, sources, out, steps, operation.states)


def _copy(source: Buffer, out: Buffer) -> Step:
    return Step("copy", (source,), out, sizes=(1, source.size, source.size, 0))
