"""The scales of a network of 8 bits, found on examples, and whole numbers in place of factors.

A number of a value is the value's scale times a whole number from −127 to 127.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from asterism.errors import InputError
from asterism.graph.network import Graph
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.shaping import Moving
from asterism.graph.stages import Array, FusedLayer
from asterism.runtime import Net
from asterism.runtime.lowering import memory

MOVED = ("relu", "max_pool", "adaptive_max_pool")  # and the operations that only move numbers
MOST = 127
Whole = npt.NDArray[np.int64]


def moves(op: str) -> bool:
    """Whether an operation leaves the scale as it is."""
    return op in MOVED or isinstance(OPERATIONS[op], Moving)


def find_scales(
    graph: Graph, weights: Sequence[Array], layers: Sequence[FusedLayer], x: Array
) -> dict[int, float]:
    """Of each value that has memory: its largest number is 127. What only moves keeps its scale.

    graph, weights  the network
    layers          what it is lowered to
    x               a batch of examples
    """
    outs = [layer.out for layer in layers]
    outs += [before_sum(graph, layer) for layer in layers if layer.added]
    net = Net(Graph(graph.inputs, graph.nodes, (*outs, *outs)), _named(weights))
    measured = dict(zip(outs, map(scale_of, net(x)), strict=False))
    scales = {0: scale_of(x)}
    for layer in layers:
        kept = moves(layer.node.op)
        scales[layer.out] = scales[layer.inputs[0]] if kept else measured[layer.out]
        if layer.added:
            before = before_sum(graph, layer)
            scales[before] = measured[before]
    roots = memory(graph)
    return scales | {value: scales[root] for value, root in enumerate(roots) if root in scales}


def before_sum(graph: Graph, layer: FusedLayer) -> int:
    """The value of a layer that another one is then added to."""
    value = layer.place + len(graph.inputs)
    while True:
        reader = next(node for node in graph.nodes if value in node.inputs)
        if reader.op == "add":
            return value
        value = graph.nodes.index(reader) + len(graph.inputs)


def _named(weights: Sequence[Array]) -> dict[str, Array]:
    return {str(number): weight for number, weight in enumerate(weights)}


def scale_of(numbers: Array) -> float:
    """The scale by which the largest of these numbers is 127."""
    most = float(np.abs(numbers).max(initial=0))
    if not math.isfinite(most):
        raise InputError("the examples make numbers that are not finite: --int8 needs others")
    return most / MOST or 1.0


def fixed_point(number: float, bits: int = 31) -> tuple[int, int]:
    """A positive number as a whole number of `bits` bits over a power of two.

    >>> fixed_point(0.75)
    (1610612736, 31)
    """
    _, exponent = math.frexp(number)
    shift = min(max(bits - exponent, 1), 2 * bits)
    return min(round(math.ldexp(number, shift)), 2**bits - 1), shift


def narrow(sums: Whole, factor: int | Whole, shift: int) -> Whole:
    """Sums times factor / 2^shift, rounded, as 8 bits."""
    found: Whole = np.clip((sums * factor + (1 << (shift - 1))) >> shift, -MOST, MOST)
    return found
