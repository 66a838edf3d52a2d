"""A network in whole numbers of 8 bits, for cores without floating point.

Each value has one scale, found on examples: a number is the scale times a whole number from −127
to 127. Weights have one scale a layer. Sums of products have 32 bits, and become a value's 8 by a
product with a whole number and a shift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from asterism.errors import InputError
from asterism.export.steps.memory import place
from asterism.export.steps.portable import Recorder
from asterism.export.steps.step import Buffer, Integers, Numbers, Portable, Step
from asterism.graph.network import Graph
from asterism.graph.operations import OPERATIONS
from asterism.graph.shapes import infer
from asterism.graph.stages import Array, FusedLayer, Shape
from asterism.runtime import Net
from asterism.runtime.lowering import lower, memory

KNOWN = ("conv", "linear", "relu", "max_pool")
MOST = 127
Whole = npt.NDArray[np.int64]


@dataclass
class Quantised:
    """A network of 8 bits: its calls, and what they compute, in numpy."""

    network: Portable
    layers: list[Layer]
    result: int

    def __call__(self, x: Array) -> Array:
        """The answers as the C file gives them, as floats again."""
        assert self.network.scales is not None
        first, last = self.network.scales
        values = {0: np.clip(np.round(x / np.float32(first)), -MOST, MOST).astype(np.int64)}
        for layer in self.layers:
            values[layer.fused.out] = layer(values[layer.fused.inputs[0]])
        found: Array = (values[self.result].reshape(len(x), -1) * last).astype(np.float32)
        return found.reshape(len(x), *self.network.outputs[0])


@dataclass
class Layer:
    """One layer, its weights whole numbers: what the C file's function computes, in numpy.

    seen, own  the shapes of its input, and of its result before a pooling that was merged into it
    factor     by which its sums become 8 bits, with a shift
    """

    fused: FusedLayer
    seen: Shape
    own: Shape
    factor: int = 1
    shift: int = 0

    def __call__(self, x: Whole) -> Whole:
        node, x = self.fused.node, x.reshape(len(x), *self.seen)
        given: Any = [None if each is None else each.astype("f8") for each in self.fused.weights]
        numbers: Any = x.astype(np.float64)
        made: Whole = OPERATIONS[node.op].numpy(node, [numbers], given, self.own).astype(np.int64)
        if node.op not in ("conv", "linear"):
            return made
        if self.fused.pool:
            made = made[..., : made.shape[-2] // 2 * 2, : made.shape[-1] // 2 * 2]
            rows = np.maximum(made[..., ::2, :], made[..., 1::2, :])
            made = np.maximum(rows[..., ::2], rows[..., 1::2])
        made = np.maximum(made, 0) if self.fused.relu else made
        made = (made * self.factor + (1 << (self.shift - 1))) >> self.shift
        return np.clip(made, -MOST, MOST)


def quantised(graph: Graph, weights: Sequence[Array], examples: Array) -> Quantised:
    """The network in 8 bits.

    graph     one with one input and one output, of layers in KNOWN
    weights   as the graph counts them
    examples  a batch of what the network is used on, for the scales
    """
    shapes = infer(graph, weights)
    layers = lower(graph, shapes, weights)
    _refuse(graph, layers)
    scales = _scales(graph, weights, layers, examples)
    recorder = _Recorder(graph, shapes, scales)
    for layer in layers:
        recorder.layer(layer)
    steps = recorder.finish()
    for buffer in {each for step in steps for each in step.buffers}:
        buffer.size = -(-buffer.size // 4) * 4  # where sums of 32 bits may lie side by side
    kept = sum(int(np.count_nonzero(weight)) for weight in weights if weight.ndim > 1)
    outputs = [shapes[value] for value in graph.outputs]
    inputs, result = [graph.input_shape], recorder.results[0]
    ends = scales[0], scales[result]
    network = Portable(steps, inputs, outputs, place(steps), [False], kept, ends)
    return Quantised(network, recorder.layers, result)


def _refuse(graph: Graph, layers: Sequence[FusedLayer]) -> None:
    names = [name for layer in layers for name in (layer.node.op, *["add"] * len(layer.added))]
    others = dict.fromkeys(name for name in names if name not in KNOWN)
    if others:
        raise InputError(
            f"--int8 knows {', '.join(KNOWN)}, and not {', '.join(others)}: export without it"
        )
    if len(graph.inputs) > 1 or len(graph.outputs) > 1 or graph.inputs[0].integer:
        raise InputError("--int8 is for networks with one input of floats and one output")


def _scales(
    graph: Graph, weights: Sequence[Array], layers: Sequence[FusedLayer], x: Array
) -> dict[int, float]:
    """Of each value that has memory: its largest number is 127. What only moves keeps its scale."""
    outs = tuple(layer.out for layer in layers)
    net = Net(Graph(graph.inputs, graph.nodes, (*outs, *outs)), _named(weights))
    found = net(x)
    scales = {0: _scale(x)}
    for layer, made in zip(layers, found, strict=False):
        moved = layer.node.op in ("relu", "max_pool")
        scales[layer.out] = scales[layer.inputs[0]] if moved else _scale(made)
    roots = memory(graph)
    return scales | {value: scales[root] for value, root in enumerate(roots) if root in scales}


def _named(weights: Sequence[Array]) -> dict[str, Array]:
    return {str(number): weight for number, weight in enumerate(weights)}


def _scale(numbers: Array) -> float:
    most = float(np.abs(numbers).max(initial=0))
    if not math.isfinite(most):
        raise InputError("the examples make numbers that are not finite: --int8 needs others")
    return most / MOST or 1.0


def fixed_point(number: float) -> tuple[int, int]:
    """A positive number as a whole number of 31 bits over a power of two.

    >>> fixed_point(0.75)
    (1610612736, 31)
    """
    _, exponent = math.frexp(number)
    shift = min(max(31 - exponent, 1), 62)
    return min(round(math.ldexp(number, shift)), 2**31 - 1), shift


class _Recorder(Recorder):
    """The calls of the functions for 8 bits; `layers` are the same calls in numpy."""

    def __init__(self, graph: Graph, shapes: Sequence[Shape], scales: dict[int, float]) -> None:
        super().__init__(graph, shapes)
        self.scales, self.layers = scales, list[Layer]()

    def layer(self, layer: FusedLayer) -> None:
        own = self.shapes[layer.place + self.count]
        factor, shift = 1, 0
        if layer.node.op in ("conv", "linear"):
            layer, (factor, shift) = self._whole(layer)
        self.layers.append(Layer(layer, self.seen(layer), own, factor, shift))
        first = len(self.steps)
        super().layer(layer)
        self.steps[first:] = [_of_8(step, factor, shift) for step in self.steps[first:]]

    def finish(self) -> list[Step]:
        first = len(self.steps)
        steps = super().finish()
        steps[first:] = [_of_8(step, 1, 0) for step in steps[first:]]
        return steps

    def _whole(self, layer: FusedLayer) -> tuple[FusedLayer, tuple[int, int]]:
        """The layer with whole weights, and how its sums become 8 bits."""
        before, after = self.scales[layer.inputs[0]], self.scales[layer.out]
        scale = _scale(layer.weight)
        weight = np.round(layer.weight / np.float32(scale)).astype(np.float32)
        bias = np.clip(np.round(layer.bias.astype(np.float64) / (scale * before)), -(2**30), 2**30)
        given: list[Any] = [weight, bias]
        return layer._replace(weights=given), fixed_point(scale * before / after)


def _of_8(step: Step, factor: int, shift: int) -> Step:
    """A call of the function for floats as one of its twin for 8 bits."""
    sizes, tables = step.sizes, step.tables
    if step.function in ("conv", "conv_any", "linear"):
        sizes = (*sizes, factor, shift)
        bias = tables[-1]
        assert isinstance(bias, Numbers)
        assert bias.array is not None
        tables = (*tables[:-2], tables[-2], Integers([int(number) for number in bias.array]))
    if step.function == "pool":
        sizes, tables = sizes[1:], tables[:1]
    scratch = None if step.scratch is None else Buffer(4 * step.scratch.size, wide=True)
    return replace(step, function=f"{step.function}_8", sizes=sizes, tables=tables, scratch=scratch)
