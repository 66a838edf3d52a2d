"""A network in whole numbers of 8 bits, for cores without floating point.

Each value has one scale, found on examples: a number is the scale times a whole number from −127
to 127. Weights have one scale a layer. Sums of products have 32 bits, and become a value's 8 by a
product with a whole number and a shift. A function of one number is a table of its 255 results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asterism.errors import InputError
from asterism.export.steps.eight_bits import AVERAGED, WEIGHTED, EightBits, Int8Layer
from asterism.export.steps.memory import place
from asterism.export.steps.scales import MOST, find_scales, moves
from asterism.export.steps.step import Portable
from asterism.graph.network import Graph
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.activations import Activation
from asterism.graph.shapes import infer
from asterism.graph.stages import Array, FusedLayer, Shape
from asterism.runtime.lowering import lower, memory


@dataclass
class Quantised:
    """A network of 8 bits: its calls, and what they compute, in numpy."""

    network: Portable
    layers: list[Int8Layer]
    result: int

    def __call__(self, x: Array) -> Array:
        """The answers as the C file gives them, as floats again."""
        assert self.network.scales is not None
        first, last = self.network.scales
        values = {0: np.clip(np.round(x / np.float32(first)), -MOST, MOST).astype(np.int64)}
        for layer in self.layers:
            values[layer.out] = layer.compute(*(values[value] for value in layer.inputs))
        found: Array = (values[self.result].reshape(len(x), -1) * last).astype(np.float32)
        return found.reshape(len(x), *self.network.outputs[0])


def quantised(
    graph: Graph, weights: Sequence[Array], examples: Array, least_ram: bool = False
) -> Quantised:
    """The network in 8 bits.

    graph      one with one input and one output, of layers that have this form
    weights    as the graph counts them
    examples   a batch of what the network is used on, for the scales
    least_ram  whether the input lies in the workspace, where it is overwritten, if possible by the
               first convolution while it reads it, and no convolution holds a row of sums
    """
    shapes = infer(graph, weights)
    layers = lower(graph, shapes, weights)
    _refuse(graph, layers, shapes)
    scales = find_scales(graph, weights, layers, examples)
    recorder = EightBits(graph, shapes, scales, least_ram)
    recorder.streams = least_ram and _streams(graph, layers, shapes)
    for layer in layers:
        recorder.layer(layer)
    steps = recorder.finish()
    for buffer in {each for step in steps for each in step.buffers}:
        buffer.size = -(-buffer.size // 4) * 4  # where sums of 32 bits may lie side by side
    kept = sum(int(np.count_nonzero(weight)) for weight in weights if weight.ndim > 1)
    outputs = [shapes[value] for value in graph.outputs]
    inputs, result = [graph.input_shape], recorder.results[0]
    ends, given = (scales[0], scales[result]), recorder.given
    room = place(steps, given, recorder.placed)
    network = Portable(steps, inputs, outputs, room, [False], kept, ends)
    network.input_at = given[0].offset if given else None
    return Quantised(network, recorder.layers, result)


def known(op: str) -> bool:
    """Whether an operation has a form in 8 bits."""
    operation = OPERATIONS[op]
    return op in (*WEIGHTED, *AVERAGED, "add") or moves(op) or isinstance(operation, Activation)


def _refuse(graph: Graph, layers: Sequence[FusedLayer], shapes: Sequence[Shape]) -> None:
    others = dict.fromkeys(layer.node.op for layer in layers if not known(layer.node.op))
    if others:
        raise InputError(f"--int8 has no form of {', '.join(others)}: export without it")
    if len(graph.inputs) > 1 or len(graph.outputs) > 1 or graph.inputs[0].integer:
        raise InputError("--int8 is for networks with one input of floats and one output")
    for layer in layers:
        seen = {shapes[value] for value in layer.node.inputs}
        if layer.node.op == "add" and len(seen) > 1:
            raise InputError("--int8 has no sum of values of different shapes: export without it")


def _streams(graph: Graph, layers: Sequence[FusedLayer], shapes: Sequence[Shape]) -> bool:
    """Whether the first layer is a convolution that alone reads the input, for convolutions."""

    def plain(layer: FusedLayer) -> bool:
        image = layer.node.op == "conv" and len(shapes[layer.node.inputs[0]]) == 3
        return image and layer.node.pair("padding") == (0, 0)

    first, *others = layers
    read = [layer for layer in others if first.out in layer.inputs]
    seen = all(shapes[layer.node.inputs[0]] == shapes[first.out] for layer in read)
    added = any({0, first.out} & {*layer.added} for layer in layers)
    alone = not added and not any(0 in layer.inputs for layer in others)
    ends = memory(graph)[graph.outputs[0]] == first.out
    return plain(first) and all(map(plain, read)) and seen and alone and not ends
