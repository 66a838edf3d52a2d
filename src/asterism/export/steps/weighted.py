"""Layers with weights as calls: only what is not zero is in their tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.export.steps.step import Buffer, Integers, Numbers, Places, Step, Table
from asterism.export.steps.tables import coded, gaps, varints
from asterism.export.steps.translate import runs
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.convolution import by_place
from asterism.graph.operations.images.taps import Taps
from asterism.graph.operations.operation import image
from asterism.graph.operations.sequences.recurrent import directions_of
from asterism.graph.stages import Array, FusedLayer, Shape

AXES = "dhw"


def matrix(weight: Array) -> tuple[Places, Numbers]:
    """A matrix by rows without its zeros, or with them where that takes fewer bytes."""
    places = gaps(np.flatnonzero(row) for row in weight)
    values = weight[weight != 0]
    smaller = coded(weight).size <= coded(values).size + len(varints(places))
    if smaller and 2 * len(values) > weight.size:
        return Places(None), Numbers(weight)
    return Places(places), Numbers(values)


def linear(layer: FusedLayer, source: Buffer, out: Buffer, inputs: int) -> Step:
    """A fully connected layer, over one row or several."""
    outputs = len(layer.weight)
    rows = out.size // max(1, outputs)
    tables = (*matrix(layer.weight), Numbers(layer.weights[1]))
    sizes = (rows, inputs, outputs, int(layer.relu))
    work = rows * int(np.count_nonzero(layer.weight))
    return Step("linear", (source,), out, sizes=sizes, tables=tables, work=work)


def with_frame(source: Buffer, seen: Shape, padding: tuple[int, int]) -> tuple[Step, Shape]:
    """An image with zeros around it, and its shape."""
    places = np.arange(math.prod(seen), dtype=np.int64).reshape(image(seen))
    wide = np.pad(places, ((0, 0), *((each, each) for each in padding)), constant_values=-1)
    found = runs(wide.reshape(-1))
    rest: dict[str, Any] = {"sizes": (len(found) // 3,), "numbers": (0.0,)}
    return Step("gather", (source,), Buffer(wide.size), **rest, tables=(Places(found),)), wide.shape


def convolution(
    layer: FusedLayer,
    source: Buffer,
    out: Buffer,
    shapes: tuple[Shape, Shape],
    padding: tuple[int, int],
) -> Step:
    """A convolution of one or two dimensions, with the pooling after it.

    shapes   of its input, and of its result before the pooling
    padding  that the input does not have yet
    """
    seen, own = shapes
    node, weight = layer.node, by_place(layer.weight)
    channels, height, width = image(seen)
    _, *size = image(own)
    if padding != (0, 0):
        three: dict[str, Shape] = {name: (fill, *node.pair(name)) for name, fill in _PLAIN.items()}
        volume = weight[:, :, None]
        return taps(layer, volume, source, out, ((1, height, width), (1, *size), three, False))
    (sh, sw), (dh, dw) = node.pair("stride"), node.pair("dilation")
    channel, row, column = _places(layer, weight)
    line = row * dh * channels + channel if source.by_rows else channel * height + row * dh
    reads = line * width + column * dw
    pool, down = 1 + layer.pool, sh * width * (channels if source.by_rows else 1)
    sizes = (len(weight), down, sw, *size, pool, int(layer.relu))
    work = int(np.count_nonzero(weight)) * math.prod(size)
    scratch, tables = Buffer(pool * size[1]), _sparse(layer, weight, reads)
    return Step("conv", (source,), out, scratch, sizes, tables=tables, work=work)


_PLAIN = {"stride": 1, "padding": 0, "dilation": 1}


def tapped(layer: FusedLayer, source: Buffer, out: Buffer, seen: Shape, made: Shape) -> Step:
    """A transposed convolution, or one of three dimensions.

    seen, made  the shapes of its input and its result
    """
    node, operation = layer.node, OPERATIONS[layer.node.op]
    assert isinstance(operation, Taps)
    weight = operation.by_output(node, layer.weight)
    before, after = ((1,) * (4 - len(shape)) + shape[1:] for shape in (seen, made))
    three = {name: tuple(node[f"{name}_{axis}"] for axis in AXES) for name in _PLAIN}
    transposed = node.op == "conv_transpose"
    return taps(layer, weight, source, out, (before, after, three, transposed))


def taps(
    layer: FusedLayer,
    weight: Array,
    source: Buffer,
    out: Buffer,
    geometry: tuple[Shape, Shape, dict[str, Shape], bool],
) -> Step:
    """Any convolution, by the function that finds the ends of every row.

    weight    as (outputs, inputs of a group, depth, height, width)
    geometry  sizes before and after, strides, paddings and dilations, and whether it is transposed
    """
    before, after, three, transposed = geometry
    channel, *place = _places(layer, weight)
    reads = channel
    for size, index in zip(weight.shape[2:], place, strict=True):
        reads = reads * size + index
    numbers = [*before, *weight.shape[2:], *after, *(n for name in _PLAIN for n in three[name])]
    pool = 1 + layer.pool
    sizes = (len(weight), int(transposed), pool, int(layer.relu))
    work = int(np.count_nonzero(weight)) * math.prod(before if transposed else after)
    tables = (Integers(numbers), *_sparse(layer, weight, reads))
    return Step("conv_any", (source,), out, Buffer(pool * after[2]), sizes, (), tables, work=work)


def _places(layer: FusedLayer, weight: Array) -> list[Any]:
    """Of every weight, zero or not, the channel that it reads and its place in the kernel."""
    index = list(np.indices(weight.shape, np.int64))
    group = index[0] // max(1, len(weight) // layer.node["groups"])
    return [index[1] + group * weight.shape[1], *index[2:]]


def _sparse(layer: FusedLayer, weight: Array, reads: Any) -> tuple[Table, ...]:
    kept = weight != 0
    rows, numbers = list[Any](), [np.zeros(0, np.float32)]
    for read, one, there in zip(reads, weight, kept, strict=True):
        order = np.argsort(read[there])  # they are in order already, unless rows come first
        rows.append(read[there][order])
        numbers.append(one[there][order])
    return Places(gaps(rows)), Numbers(np.concatenate(numbers)), Numbers(layer.weights[1])


def recurrent(
    layer: FusedLayer, sources: Sequence[Buffer], out: Buffer, steps: int, states: int
) -> list[Step]:
    """An LSTM or a GRU, one call for each direction.

    steps   of the sequence
    states  how many values its state is
    """
    directions, found = directions_of(layer.weights), list[Step]()
    given = (*sources, *[None] * (1 + states - len(sources)))
    for direction, (of_inputs, of_state, first, second) in enumerate(directions):
        rows, units = of_state.shape
        sizes: Shape = (steps, of_inputs.shape[1], units, len(directions), direction)
        sizes += (layer.node["cells"],) if layer.node.op == "lstm" else ()
        tables = (*matrix(of_inputs), Numbers(first), *matrix(of_state), Numbers(second))
        scratch = Buffer(states * units + 2 * rows)
        work = steps * int(np.count_nonzero(of_inputs) + np.count_nonzero(of_state))
        step = Step(layer.node.op, given, out, scratch, sizes, (), tables, work=work)
        found.append(step)
    return found
