"""Images with zeros between their rows and channels, as kernels/layers/conv_planes.h reads them.

Owns where a number lies in such an image, and which of its rows and columns a stride takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asterism.graph.operations.convolution import by_place, live_outputs
from asterism.graph.stages import Array, FusedLayer
from asterism.runtime.layers.packing import DENSE_ENTRY, ENTRY, Data, quads_of, starts_of
from asterism.runtime.layers.windows import Indices

ALIGNED = 16  # floats in a cache line


class Planes(NamedTuple):
    """How the channels of an image lie one after the other.

    size     height and width of each
    pitch    numbers from one row to the next: what is between them are zeros
    gap      rows of zeros after each channel
    aligned  whether each channel begins a cache line, if there are zeros
    """

    channels: int
    size: tuple[int, int]
    pitch: int
    gap: int = 0
    aligned: bool = True

    @property
    def plain(self) -> bool:
        """Whether there are no zeros at all."""
        return self.pitch == self.size[1] and not self.gap

    @property
    def plane(self) -> int:
        """Numbers from one channel to the next."""
        numbers = (self.size[0] + self.gap) * self.pitch
        return _lines(numbers) if self.aligned and not self.plain else numbers

    @property
    def length(self) -> int:
        """Numbers from a channel's first to its last."""
        return (self.size[0] - 1) * self.pitch + self.size[1]

    @property
    def margin(self) -> int:
        """Zeros before the first channel."""
        zeros = self.gap * self.pitch + self.pitch - self.size[1]
        return _lines(zeros)

    @property
    def total(self) -> int:
        return self.margin + self.channels * self.plane

    def each(self) -> Sorted:
        """The channels as planes that have all of their rows and columns."""
        planes = np.zeros((self.channels, 3), np.int32)
        planes[:, 0] = np.arange(self.channels)
        aligned = self.aligned and not self.plain
        return Sorted(planes, (1, 1), (0, 0), self.size[0] + self.gap, self.pitch, aligned)

    def valid(self, lanes: int) -> Array:
        """Of each number of a channel, in whole vectors, whether it is one: all bits or none."""
        rows = np.zeros((self.size[0], self.pitch), np.uint32)
        rows[:, : self.size[1]] = ~np.uint32(0)
        flags = np.zeros(-(-self.length // lanes) * lanes, np.uint32)
        flags[: self.length] = rows.reshape(-1)[: self.length]
        return flags.view(np.float32)


def _lines(numbers: int) -> int:
    """As many, or the few more that fill a cache line."""
    return -(-numbers // ALIGNED) * ALIGNED


class Sorted(NamedTuple):
    """The input of convolutions with a stride: rows and columns that far apart are a plane.

    planes   of each one that a weight reads: its channel, its first row and its first column
    stride   of those convolutions
    padding  rows of zeros, and zeros, before the first
    rows     of each plane
    pitch    numbers from one row to the next
    aligned  whether each begins a cache line
    """

    planes: Indices
    stride: tuple[int, int]
    padding: tuple[int, int]
    rows: int
    pitch: int
    aligned: bool = True

    @property
    def plane(self) -> int:
        """Numbers from one plane to the next."""
        numbers = self.rows * self.pitch
        return _lines(numbers) if self.aligned else numbers

    @property
    def total(self) -> int:
        return len(self.planes) * self.plane

    def reads(self, layer: FusedLayer) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Of each weight that is needed: its plane, and how far in it from the result's place."""
        _, channel, y, x = _live(layer)
        (ph, pw), (dh, dw) = layer.node.pair("padding"), layer.node.pair("dilation")
        y, x = y * dh - ph + self.padding[0], x * dw - pw + self.padding[1]
        (sh, sw) = self.stride
        return np.stack([channel, y % sh, x % sw], 1), y // sh * self.pitch + x // sw

    def holds(self, layer: FusedLayer, out: tuple[int, int], pitch: int) -> bool:
        """Whether it has all that a convolution reads, for results of this size and pitch."""
        above, beside = layer.node.pair("padding")
        if self.stride != layer.node.pair("stride") or self.pitch < pitch:
            return False
        if above > self.padding[0] or beside > self.padding[1]:
            return False
        rows, columns = _reach(layer, self.padding)
        if out[0] + rows > self.rows or out[1] + columns > self.pitch:
            return False
        return set(map(tuple, self.reads(layer)[0].tolist())) <= set(
            map(tuple, self.planes.tolist())
        )


def sorted_input(layers: Sequence[FusedLayer], out: tuple[int, int], pitch: int) -> Sorted:
    """The planes that convolutions with the same stride read, in rows of at least `pitch`.

    out  height and width of their results
    """
    stride = layers[0].node.pair("stride")
    paddings = [layer.node.pair("padding") for layer in layers]
    padding = max(above for above, _ in paddings), max(beside for _, beside in paddings)
    reach = [_reach(layer, padding) for layer in layers]
    rows, columns = max(down for down, _ in reach), max(along for _, along in reach)
    empty = Sorted(np.zeros((0, 3), np.int32), stride, padding, out[0] + rows, 0)
    found = {tuple(plane) for layer in layers for plane in empty.reads(layer)[0].tolist()}
    # Of planes that take a channel's columns by turns, first the one that has the first column.
    order = sorted(found, key=lambda plane: (*plane[:2], (plane[2] - padding[1]) % stride[1]))
    table = np.array(order, np.int32).reshape(-1, 3)
    return empty._replace(planes=table, pitch=max(pitch, out[1] + columns))


def _reach(layer: FusedLayer, padding: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns that a convolution reads beyond its result of a plane with this padding."""
    sides = zip(
        by_place(layer.weight).shape[2:],
        *(layer.node.pair(name) for name in ("dilation", "padding", "stride")),
        padding,
        strict=True,
    )
    rows, columns = (((k - 1) * d + more - p) // s for k, d, p, s, more in sides)
    return rows, columns


def _live(layer: FusedLayer) -> tuple[npt.NDArray[np.intp], ...]:
    """Output, input channel and place in the kernel of each weight that is needed."""
    outputs, weight = live_outputs(layer), by_place(layer.weight)
    row, channel, y, x = np.nonzero(weight[outputs])
    group = outputs[row] // max(1, len(weight) // layer.node["groups"])
    return row, channel + group * weight.shape[1], y, x


def offsets_in(layer: FusedLayer, at: Planes | Sorted) -> npt.NDArray[np.int64]:
    """For each weight that is needed, how far its input is from the result's place."""
    if isinstance(at, Sorted):
        keys, within = at.reads(layer)
        number = {tuple(plane): i for i, plane in enumerate(at.planes.tolist())}
        planes = np.array([number[tuple(key)] for key in keys.tolist()], np.int64)
        return planes * at.plane + within
    _, channel, y, x = _live(layer)
    (ph, pw), (dh, dw) = layer.node.pair("padding"), layer.node.pair("dilation")
    places = (y * dh - ph) * at.pitch + x * dw - pw
    return np.asarray(at.margin + channel * at.plane + places, np.int64)


def sparse_weights(layer: FusedLayer, at: Planes | Sorted, made: Planes) -> Data:
    """Entries, where each channel's begin, the channels, their biases; as `with_zeros` has them."""
    outputs, (row, *_) = live_outputs(layer), _live(layer)
    weight = by_place(layer.weight)[outputs]
    entries = np.empty(len(row), ENTRY)
    entries["offset"], entries["weight"] = offsets_in(layer, at), weight[weight != 0]
    counts = np.bincount(row, minlength=len(outputs))
    if not made.plain:  # then any order will do: one that the processor foresees
        order = np.argsort(counts, kind="stable")
        entries = entries[np.argsort(np.argsort(order)[row], kind="stable")]
        outputs, counts = outputs[order], counts[order]
    return entries, starts_of(counts), outputs.astype(np.int32), layer.bias[outputs]


def dense_weights(layer: FusedLayer, at: Planes | Sorted, made: Planes) -> Data:
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


def with_zeros(data: Data, made: Planes, lanes: int) -> Data:
    """The same for a result that has zeros between its rows, and which of its numbers are none.

    After the channels that are written come those that are not and lie before one that is: it needs
    the zeros at their ends.
    """
    if made.plain:
        return data
    entries, starts, channels, biases = data
    written = set(channels.tolist())
    before = [number - 1 for number in sorted(written) if number > 0 and number - 1 not in written]
    channels = np.concatenate([channels, np.array(before, np.int32)])
    return entries, starts, channels, biases, made.valid(lanes)
