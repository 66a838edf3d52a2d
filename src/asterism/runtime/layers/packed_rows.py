"""The steps of convolutions by whole rows, whose results lie packed for those that read them."""

from __future__ import annotations

import numpy as np

import asterism.runtime.layers.packing as packing
import asterism.runtime.layers.windows as windows
from asterism.graph.operations.operation import image
from asterism.graph.stages import FusedLayer
from asterism.runtime.building import Planning
from asterism.runtime.choice.cost import Choice
from asterism.runtime.layers.planes import Planes, Sorted
from asterism.runtime.layers.whole_channels import WholeChannelSteps
from asterism.runtime.layers.windows import MAX_PACKED, Window
from asterism.runtime.steps import Buffer


class PackedRowSteps(WholeChannelSteps):
    """Values packed as kernels/layers/conv_rows.h reads them, and the convolutions that do so."""

    def __init__(self, planning: Planning) -> None:
        super().__init__(planning)
        self.packed: dict[int, tuple[Buffer, Window]] = {}  # values that lie so, all channels

    def choose(self, layer: FusedLayer) -> tuple[Choice, Window]:
        """A convolution's kernel, and how it reads its input."""
        raise NotImplementedError

    # ------------------------------------------------------------------ values that lie packed

    def rows(self, value: int, layer: FusedLayer) -> Buffer:
        if value not in self.values and value in self.packed:
            source, at = self.packed[value]
            channels, height, width = image(self.shapes[value])
            self.values[value] = self.memory(value)
            lies = Planes(channels, (height, width), at.line, at.rows - height, aligned=False)
            plain = lies._replace(pitch=width, gap=0)
            begin = at.padding[0] * at.line
            self.spread(layer, source, lies, plain, self.values[value], begin=begin)
        return super().rows(value, layer)

    def to_pack(self, layer: FusedLayer, at: Window) -> int:
        """Numbers to pack for a convolution by rows, so far; a row counts as eight more."""
        value = layer.inputs[0]
        if not _may_stay(at):
            return at.packed
        maker = self.makers.get(value)
        conv = maker if maker and maker.node.op == "conv" and not maker.pool else None
        if self.is_packed(value, at) or (conv and conv.node.pair("stride") == (1, 1)):
            return 0
        return at.packed // at.line * (at.line + 8)

    def packed_after(self, layer: FusedLayer, at: Window) -> Window | None:
        """How a result lies packed for all that read it; None if it should not."""
        value, readers = layer.out, self.readers.get(layer.out, [])
        added_later = self.makers[value].added and not layer.added
        if added_later or layer.pool or at.strips > 1 or value in self.ends.results:
            return None
        found: Window | None = None
        for reader in readers:
            if reader.node.op != "conv" or self.seen(reader) != self.shapes[reader.inputs[0]]:
                return None
            choice, after = self.choose(reader)
            if choice.kernel != "rows" or not _may_stay(after) or after.line != at.line:
                return None
            if value in reader.inputs:
                after = _with_channels(after, image(self.shapes[value])[0])
                if found is not None and (found.rows, found.padding) != (after.rows, after.padding):
                    return None
                found = after
            elif not self.may_add(reader, after):
                return None
        return found if found is not None and found.packed <= MAX_PACKED else None

    def is_packed(self, value: int, at: Window) -> bool:
        """Whether a value lies as a convolution reads it."""
        if value not in self.packed or not _may_stay(at):
            return False
        lies = self.packed[value][1]
        return (lies.line, lies.rows, lies.padding) == (at.line, at.rows, at.padding)

    def pack(self, layer: FusedLayer, at: Window) -> tuple[Buffer, Window]:
        """The input of a convolution, packed, and how: it may have channels that others read."""
        value = layer.inputs[0]
        every = _with_channels(at, image(self.seen(layer))[0])
        if _may_stay(at) and self.only_planes(value, layer) and every.packed <= MAX_PACKED:
            source, lies = self.planes[value]
            table = np.zeros((len(every.channels), 3), np.int32)
            table[:, 0] = every.channels
            self.packed[value] = Buffer(every.packed), every
            wanted = Sorted(table, (1, 1), at.padding, at.rows, at.line, aligned=False)
            self.spread(layer, source, lies, wanted, self.packed[value][0])
        if self.is_packed(value, at):
            return self.packed[value]
        packed = Buffer(max(at.packed, 1))
        sizes = [len(at.channels), *at.size, *at.padding, *at.stride, at.rows, at.strips, at.line]
        sizes += [*at.phases, at.step, self.size(value)]
        self.add("PACK", layer, self.rows(value, layer), packed, sizes=sizes, data=(at.channels,))
        return packed, at

    # ------------------------------------------------------------------ the convolution

    def may_add(self, layer: FusedLayer, at: Window) -> bool:
        """Whether a convolution by rows can add another value to its result itself."""
        return not layer.pool and at.strips == 1 and windows.parts(layer, at, self.lanes) == 1

    def adds(self, layer: FusedLayer, at: Window) -> bool:
        """Whether it does: that value has to lie in lines as long."""
        value = layer.added[0]
        lines = self.packed[value][1].line if value in self.packed else self.shapes[value][-1]
        return self.may_add(layer, at) and lines == at.line

    def added_rows(self, layer: FusedLayer) -> tuple[Buffer, list[int]]:
        """What is added, in rows of the same pitch: where it is, where its rows begin, a plane."""
        value = layer.added[0]
        if value in self.packed:
            source, lies = self.packed[value]
            return source, [1, lies.padding[0] * lies.line, lies.plane]
        _, height, width = image(self.shapes[value])
        return self.rows(value, layer), [1, 0, height * width]

    def conv_rows(self, layer: FusedLayer, at: Window) -> None:
        parts = windows.parts(layer, at, self.lanes)
        packed, at = self.pack(layer, at)
        data = packing.conv_rows(layer, at, parts)
        height, width = at.out
        _, *out = image(self.shapes[layer.out])
        if layer.pool:
            height = height // 2 * 2
        sizes = [len(data[2]), height, at.strips, at.line, at.strip_pitch, width]
        other = Buffer(len(data[2]) * windows.SUMS * self.lanes if parts > 1 else 1)
        added = [0, 0, 0]
        if layer.added:
            other, added = self.added_rows(layer)
        after = self.packed_after(layer, at)
        if after is None:
            result, pitches, around = self.out(layer), [out[1], out[0] * out[1]], [0, 0]
        else:
            self.packed[layer.out] = result, _ = Buffer(after.packed), after
            pitches = [after.line, after.plane]
            around = [after.padding[0], after.rows - after.padding[0] - height]
        sizes += [*pitches, at.step, at.left, at.right, at.left + at.left % 2, layer.pool]
        self.add(
            "CONV_ROWS",
            layer,
            packed,
            result,
            other=other,
            sizes=[*sizes, parts, *around, *added, packing.shares_loads(data[0])],
            data=data,
            activation=layer.fused,
        )


def _with_channels(at: Window, count: int) -> Window:
    return at._replace(channels=np.arange(count, dtype=np.int32))


def _may_stay(at: Window) -> bool:
    """Whether what a convolution reads is rows that another may have left so."""
    return at.whole_rows and at.strips == 1 and at.stride == (1, 1)
