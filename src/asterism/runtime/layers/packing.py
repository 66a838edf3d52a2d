"""Weights in the order in which the kernels read them.

A sparse layer is a list of entries, a weight and the offset of its input each, output channel by
output channel, with the places where the channels begin. Channels with few entries come first:
then neighbours have about as many, and whoever takes several at a time wastes little.

Owns the layout of every kind of weight; the C side of each is the header of its kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from asterism.graph.operations.convolution import by_place, live_inputs, live_outputs
from asterism.graph.stages import Array, FusedLayer
from asterism.runtime.layers.windows import Indices, Window

ENTRY = np.dtype([("offset", np.int32), ("weight", np.float32)])
DENSE_ENTRY = np.dtype([("offset", np.int32), ("weight", np.float32, 4)])
BLOCK = 32
SHARED = 3  # places in a kernel, at most, whose weights share their loads
KIND = 3  # bits of an offset that say which of the entries after it do

Data = tuple[npt.NDArray[np.generic], ...]


def shared_from(live: npt.NDArray[np.bool_], stride: int, dilation: int) -> npt.NDArray[np.int64]:
    """For each live weight along the last axis, the place of the one with which its loads begin.

    A weight at place k reads for sum i what one at place k − stride reads for sum i + 1. Therefore
    weights less than SHARED strides apart load a vector once and multiply it into neighbouring
    sums: kernels/layers/shared_loads.h. The first of them begins, up to two more share.
    """
    first = np.zeros(live.shape, np.int64)
    began: dict[int, npt.NDArray[np.int64]] = {}  # the last, of each phase of the stride
    for k in range(live.shape[-1]):
        place, here = k * dilation, live[..., k]
        # Only places of the same phase read the same inputs. Before the first, nothing is near.
        before = began.get(place % stride, np.full(here.shape, -SHARED * stride))
        # A live weight that is too far from the last beginning begins anew.
        first[..., k] = np.where(here & (place - before >= SHARED * stride), place, before)
        began[place % stride] = first[..., k]
    return first


def sums_away(layer: FusedLayer, live: npt.NDArray[np.bool_], axis: int) -> npt.NDArray[np.int64]:
    """For each live weight, how many sums along this axis it is from where its loads begin."""
    stride, dilation = layer.node.pair("stride")[axis], layer.node.pair("dilation")[axis]
    live = np.moveaxis(live, axis + 2, -1)
    away = np.arange(live.shape[-1]) * dilation - shared_from(live, stride, dilation)
    return np.moveaxis(away // stride, -1, axis + 2)


def count_loads(layer: FusedLayer, live: npt.NDArray[np.bool_], axis: int) -> int:
    """The live weights, of which those that share loads along this axis count once."""
    return int((live & (sums_away(layer, live, axis) == 0)).sum())


def _offsets(layer: FusedLayer, at: Window) -> tuple[npt.NDArray[np.intp], Array, Indices]:
    """The needed outputs' weights, and each one's offset in the packed input."""
    outputs, weight = live_outputs(layer), by_place(layer.weight)
    # Of each output and weight: which packed channel it reads; weights count within their group.
    per_group = weight.shape[1]
    group = outputs // (len(weight) // layer.node["groups"])
    slots = np.zeros(per_group * layer.node["groups"], np.int64)
    slots[at.channels] = np.arange(len(at.channels))
    channel = slots[group[:, None] * per_group + np.arange(per_group)]
    # Of each place in the kernel: its phase of the stride, and how far it is inside of that. By
    # whole rows, columns of the kernel shift the sums, and do not move the input.
    (dh, dw), (sh, sw) = layer.node.pair("dilation"), at.stride
    y, x = np.arange(weight.shape[2]) * dh, np.arange(weight.shape[3]) * dw
    down = (y % sh) * at.phases[1] * at.phase_pitch + (y // sh) * at.line
    along = (x % sw) * at.phase_pitch + (x // sw if not at.whole_rows else 0)
    offsets = (channel * at.plane)[:, :, None, None] + down[:, None] + along
    return outputs, weight[outputs], offsets.astype(np.int32)


def conv_sparse(layer: FusedLayer, at: Window) -> Data:
    """Entries, where each channel's begin, the channels, their biases; short channels first."""
    outputs, weight, offsets = _offsets(layer, at)
    # How many entries each channel has, and the channels with fewest first.
    live = weight != 0
    counts = live.reshape(len(live), -1).sum(1)
    order = np.argsort(counts, kind="stable")
    entries = np.empty(int(counts.sum()), ENTRY)
    entries["offset"], entries["weight"] = offsets[order][live[order]], weight[order][live[order]]
    return entries, starts_of(counts[order]), _i32(outputs[order]), layer.bias[outputs[order]]


def conv_rows(layer: FusedLayer, at: Window, parts: int) -> Data:
    """As `conv_sparse`, by parts of the input, and each channel's by column as in conv_rows.h."""
    outputs, weight, offsets = _offsets(layer, at)
    # Sums are shifted by a column at a time, from the outermost columns of the kernel inwards:
    # those right of the one that needs no shift, then those left of it, and that one last.
    column = np.arange(weight.shape[3]) * layer.node.pair("dilation")[1] // at.stride[1] - at.left
    turn = np.where(column > 0, at.right - column, at.right + at.left)
    turn[column < 0] += column[column < 0]
    # Channels that do alike follow each other, which the processor foresees: those without anything
    # to shift from the right, or from the left, and by how much they have.
    counts = (weight != 0).sum((1, 2))
    shifted = [counts[:, side].any(1) for side in (column > 0, column < 0)]
    order = np.lexsort((counts.sum(1), *shifted))
    # Entries are grouped by the part of the input channels that they read, which stays in the
    # cache, then by output channel, then by that turn.
    row, channel, y, x = np.nonzero(weight[order])
    places = order[row], channel, y, x
    part = (offsets[order[row], channel, 0, 0] // at.plane) * parts // max(1, len(at.channels))
    group = (part * len(order) + row) * (at.halo + 1) + turn[x]
    entries = np.empty(len(row), ENTRY)
    entries["offset"], entries["weight"] = offsets[places], weight[places]
    entries = entries[_share(layer, entries["offset"], weight[order], group, 0, at.line)]
    starts = starts_of(np.bincount(group, minlength=parts * len(order) * (at.halo + 1)))
    return entries, starts, _i32(outputs[order]), layer.bias[outputs[order]]


def shares_loads(entries: npt.NDArray[Any]) -> bool:
    """Whether any of a convolution's entries share their loads."""
    return bool((entries["offset"] & KIND).any())


def _share(
    layer: FusedLayer,
    offsets: Indices,
    weight: Array,
    group: npt.NDArray[np.intp],
    axis: int,
    pitch: int,
) -> npt.NDArray[np.intp]:
    """An order of the entries of `weight` in which those that share loads are together.

    Marks the first of two or three in its offset, as kernels/layers/shared_loads.h wants it.

    offsets  of the entries, in the order of np.nonzero
    group    of each entry: entries of different groups are not mixed
    axis     of the kernel along which they share
    pitch    from one sum's inputs to the next one's
    """
    live = weight != 0
    away = sums_away(layer, live, axis)[live]
    # Those that share have one offset where their loads begin; the one that begins comes first.
    order = np.lexsort((away, offsets - away * pitch, group))
    alone = away[order] == 0
    of = np.cumsum(alone) - 1
    # Which of the next two sums share is two bits, 1 and 2, as no two are equally far away. Offsets
    # are multiples of at least 4 there: the lowest bits are free.
    kind = np.bincount(of, away[order]).astype(np.int32)
    offsets[order[alone]] += kind
    # In a group, entries of one kind follow each other: the kernel has a loop for each.
    return order[np.lexsort((kind[of], group[order]))]


def features(layer: FusedLayer, plane: int) -> Indices:
    """All places of the channels that a convolution reads."""
    return _i32((live_inputs(layer)[:, None] * plane + np.arange(plane)).reshape(-1))


def conv_columns(layer: FusedLayer, slots: Indices) -> Data:
    """As `conv_sparse`, for an input whose columns are at `slots`: channels, height, width."""
    outputs, weight = live_outputs(layer), by_place(layer.weight)
    order = outputs[
        np.argsort((weight[outputs] != 0).reshape(len(outputs), -1).sum(1), kind="stable")
    ]
    row, channel, y, x = np.nonzero(weight[order])
    group = order // (len(weight) // layer.node["groups"])
    down, along = layer.node.pair("dilation")
    entries = np.empty(len(row), ENTRY)
    entries["offset"] = slots[group[row] * weight.shape[1] + channel, y * down, x * along] * BLOCK
    entries["weight"] = weight[order[row], channel, y, x]
    pitch = layer.node.pair("stride")[1] * BLOCK
    entries = entries[_share(layer, entries["offset"], weight[order], row, 1, pitch)]
    return (
        entries,
        starts_of(np.bincount(row, minlength=len(order))),
        _i32(order),
        layer.bias[order],
    )


def conv_dense(layer: FusedLayer, at: Window) -> Data:
    """As `conv_sparse`, for four channels at a time and with every entry that one of them has."""
    outputs, weight, offsets = _offsets(layer, at)
    channels, biases, columns = quads_of(weight, outputs, layer.bias)
    # A place is left out where all four channels have a zero. Offsets are those of the first
    # channel: such a layer has one group (`cost.conv`), and all channels read the same places.
    live = (columns != 0).any(2)
    entries = np.empty(int(live.sum()), DENSE_ENTRY)
    entries["offset"] = np.broadcast_to(offsets[0].reshape(-1), live.shape)[live]
    entries["weight"] = columns[live]
    return entries, starts_of(live.sum(1)), channels, biases


def quads_of(
    weight: Array, outputs: npt.NDArray[np.intp], bias: Array
) -> tuple[Indices, Array, Array]:
    """Four outputs for each entry: their channels, biases, and weights (quads, places, 4).

    Where their number is no multiple of four, channels of −1 mark the rest.
    """
    quads = -(-len(outputs) // 4)
    padded = np.zeros((quads * 4, weight[0].size), np.float32)
    padded[: len(outputs)] = weight.reshape(len(outputs), -1)
    channels = np.full(quads * 4, -1, np.int32)
    channels[: len(outputs)] = outputs
    biases = np.zeros(quads * 4, np.float32)
    biases[: len(outputs)] = bias[outputs]
    return channels, biases, padded.reshape(quads, 4, -1).transpose(0, 2, 1)


def fc_sparse(layer: FusedLayer, slots: Indices, together: int | None = None) -> Data:
    """Row by row, with the place of a feature's column for its offset.

    together  outputs that stay together, if not all of them do
    """
    rows = _rows(layer)
    weight = layer.weight[rows]
    # Rows with few weights first, as for convolutions; the weights of a row by their inputs.
    live = weight != 0
    groups = np.arange(len(rows)) // (together or max(1, len(rows)))
    order = np.lexsort((live.sum(1), groups))
    row, column = np.nonzero(live[order])
    entries = np.empty(len(row), ENTRY)
    entries["offset"], entries["weight"] = slots[column] * BLOCK, weight[order[row], column]
    counts = np.bincount(row, minlength=len(rows))
    places = rows[order] if together is None else rows[order] % together
    return entries, starts_of(counts), _i32(places), layer.bias[rows[order]]


def fc_sparse_one(layer: FusedLayer) -> Data:
    """Eight rows side by side (SELL-8): weights, places, where slices begin, their rows, biases.

    A slice is eight outputs; its first eight weights are the first of each, and shorter rows are
    filled with zeros.
    """
    rows = _rows(layer)
    order = rows[np.argsort((layer.weight[rows] != 0).sum(1), kind="stable")]
    weights, places, starts = _sell(layer.weight[order])
    padded = np.full(len(starts) * 8 - 8, -1, np.int32)
    padded[: len(order)] = order
    biases = filled(layer.bias[order], 8)
    return weights, places, np.concatenate([starts, padded]), biases


def _sell(weight: Array) -> tuple[Array, Indices, Indices]:
    """Slices of eight rows: weights and their places, those of a slice by turns, its beginning."""
    side, slices = 8, -(-len(weight) // 8)
    # Of each non-zero: its row and its input, and how many of the row are before it.
    row, place = np.nonzero(weight)
    counts = np.bincount(row, minlength=slices * side)
    starts = starts_of(counts.reshape(slices, side).max(1, initial=0))
    position = np.arange(len(row)) - starts_of(counts)[row]
    flat = (starts[row // side] + position) * side + row % side
    weights = np.zeros(int(starts[-1]) * side, np.float32)
    places = np.zeros(int(starts[-1]) * side, np.int32)
    weights[flat], places[flat] = weight[row, place], place
    return weights, places, starts


def filled(numbers: Array, multiple: int) -> Array:
    """Numbers with zeros after them, up to a multiple."""
    return np.pad(numbers, (0, -len(numbers) % multiple))


def recurrent_dense(weight: Array, bias: Array) -> Data:
    """A recurrent matrix of which 32 rows are side by side."""
    panels = -(-len(weight) // 32)
    whole = np.zeros((panels * 32, weight.shape[1]), np.float32)
    whole[: len(weight)] = weight
    packed = np.ascontiguousarray(whole.reshape(panels, 32, -1).transpose(0, 2, 1))
    return packed, np.zeros(0, np.uint16), np.zeros((panels, 2), np.int32), filled(bias, 32)


def fc_dense(layer: FusedLayer) -> Data:
    """Panels of 16 outputs: for each input, their weights side by side."""
    weight = layer.weight
    panels = -(-len(weight) // 16)
    padded = np.zeros((panels * 16, weight.shape[1]), np.float32)
    padded[: len(weight)] = weight
    biases = np.zeros(panels * 16, np.float32)
    biases[: len(weight)] = layer.bias
    packed = padded.reshape(panels, 16, -1).transpose(0, 2, 1)
    none = np.zeros(0, np.int32)
    return np.ascontiguousarray(packed), none, none, biases


def _rows(layer: FusedLayer) -> npt.NDArray[np.intp]:
    """The needed outputs of a fully connected layer; all where it runs over several rows."""
    assert layer.needed is not None
    if layer.needed.ndim > 1:
        return np.arange(len(layer.weight))
    return np.flatnonzero(layer.needed)


def starts_of(counts: npt.NDArray[np.generic]) -> Indices:
    """Where each of several lists begins that lie one after the other, and where the last ends."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def _i32(indices: npt.NDArray[np.intp]) -> Indices:
    return indices.astype(np.int32)
