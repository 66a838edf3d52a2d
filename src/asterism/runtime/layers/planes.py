"""Images with zeros between their rows and channels, as kernels/layers/conv_planes.h reads them.

Owns where a number lies in such an image, and which of its rows and columns a stride takes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asterism.graph.operations.convolution import by_place, live_outputs
from asterism.graph.stages import FusedLayer
from asterism.runtime.layers.packing import DENSE_ENTRY, ENTRY, Data, quads_of, starts_of
from asterism.runtime.layers.windows import Indices

ALIGNED = 16  # floats in a cache line


class Planes(NamedTuple):
    """How the channels of an image lie one after the other.

    size   height and width of each
    pitch  numbers from one row to the next: what is between them are zeros
    gap    rows of zeros after each channel
    """

    channels: int
    size: tuple[int, int]
    pitch: int
    gap: int = 0

    @property
    def plain(self) -> bool:
        """Whether there are no zeros at all."""
        return self.pitch == self.size[1] and not self.gap

    @property
    def plane(self) -> int:
        """Numbers from one channel to the next."""
        return (self.size[0] + self.gap) * self.pitch

    @property
    def margin(self) -> int:
        """Zeros before the first channel."""
        zeros = self.gap * self.pitch + self.pitch - self.size[1]
        return -(-zeros // ALIGNED) * ALIGNED

    @property
    def total(self) -> int:
        return self.margin + self.channels * self.plane

    def holds(self, padding: tuple[int, int]) -> bool:
        """Whether there are zeros enough around each channel."""
        return self.gap >= padding[0] and self.pitch >= self.size[1] + padding[1]


class Sorted(NamedTuple):
    """The input of a convolution with a stride: rows and columns that far apart are a plane.

    planes  of each one that a weight reads: its channel, its first row and its first column
    rows    of each
    pitch   numbers from one row to the next
    """

    planes: Indices
    rows: int
    pitch: int

    @property
    def total(self) -> int:
        return len(self.planes) * self.rows * self.pitch


def sorted_input(layer: FusedLayer, out: tuple[int, int], pitch: int) -> Sorted:
    """The planes that a convolution with a stride reads, in rows of at least `pitch`."""
    stride, dilation = layer.node.pair("stride"), layer.node.pair("dilation")
    _, channel, y, x = _live(layer)
    planes = np.stack([channel, y * dilation[0] % stride[0], x * dilation[1] % stride[1]], 1)
    extent = by_place(layer.weight).shape[2:]
    reach = [(k - 1) * d // s for k, d, s in zip(extent, dilation, stride, strict=True)]
    found = sorted(set(map(tuple, planes.tolist())))
    table = np.array(found, np.int32).reshape(-1, 3)
    return Sorted(table, out[0] + reach[0], max(pitch, out[1] + reach[1]))


def _live(layer: FusedLayer) -> tuple[npt.NDArray[np.intp], ...]:
    """Output, input channel and place in the kernel of each weight that is needed."""
    outputs, weight = live_outputs(layer), by_place(layer.weight)
    row, channel, y, x = np.nonzero(weight[outputs])
    group = outputs[row] // max(1, len(weight) // layer.node["groups"])
    return row, channel + group * weight.shape[1], y, x


def offsets_in(layer: FusedLayer, at: Planes | Sorted) -> npt.NDArray[np.int64]:
    """For each weight that is needed, how far its input is from the result's place."""
    (ph, pw), (sh, sw), (dh, dw) = (
        layer.node.pair(name) for name in ("padding", "stride", "dilation")
    )
    _, channel, y, x = _live(layer)
    if isinstance(at, Planes):
        places = (y * dh - ph) * at.pitch + x * dw - pw
        return np.asarray(at.margin + channel * at.plane + places, np.int64)
    number = {tuple(plane): i for i, plane in enumerate(at.planes.tolist())}
    keys = np.stack([channel, y * dh % sh, x * dw % sw], 1).tolist()
    planes = np.array([number[tuple(key)] for key in keys], np.int64)
    return planes * at.rows * at.pitch + y * dh // sh * at.pitch + x * dw // sw


def sparse_weights(layer: FusedLayer, at: Planes | Sorted) -> Data:
    """Entries, where each channel's begin, the channels in their order, their biases."""
    outputs, (row, *_) = live_outputs(layer), _live(layer)
    weight = by_place(layer.weight)[outputs]
    entries = np.empty(len(row), ENTRY)
    entries["offset"], entries["weight"] = offsets_in(layer, at), weight[weight != 0]
    starts = starts_of(np.bincount(row, minlength=len(outputs)))
    return entries, starts, outputs.astype(np.int32), layer.bias[outputs]


def dense_weights(layer: FusedLayer, at: Planes | Sorted) -> Data:
    """The same for four channels at a time, with every entry that one of them has."""
    outputs = live_outputs(layer)
    weight = by_place(layer.weight)[outputs]
    channels, biases, columns = quads_of(weight, outputs, layer.bias)
    # Without groups, weights of one place read the same input, whatever their output is.
    offsets = np.zeros(weight[0].size, np.int64)
    place = np.nonzero(weight.reshape(len(outputs), -1))[1]
    offsets[place] = offsets_in(layer, at)
    live = (columns != 0).any(2)
    entries = np.empty(int(live.sum()), DENSE_ENTRY)
    entries["offset"] = np.broadcast_to(offsets, live.shape)[live]
    entries["weight"] = columns[live]
    return entries, starts_of(live.sum(1)), channels, biases


def spread_from(source: Planes, planes: Indices, begin: int) -> Indices:
    """What `spread` reads of each plane: where it begins, its first row and column.

    source  how the planes lie
    planes  the number of each, its first row and column
    begin   where the first of the source is
    """
    table = planes.astype(np.int32)
    table[:, 0] = begin + planes[:, 0] * source.plane
    return np.ascontiguousarray(table)
