"""The steps of convolutions over whole channels, whose results lie as the next one reads them."""

from __future__ import annotations

import asterism.runtime.layers.planes as layouts
from asterism.graph.operations.convolution import by_place
from asterism.graph.operations.operation import image
from asterism.graph.stages import FusedLayer
from asterism.runtime.building import Planning
from asterism.runtime.choice.cost import WholeChannels
from asterism.runtime.layers.plane_values import PlaneValues
from asterism.runtime.layers.planes import Planes, Sorted
from asterism.runtime.layers.windows import CACHE, MAX_PACKED
from asterism.runtime.steps import Buffer

NEAR = 2**15  # bytes of a first-level cache
TILE = {4: 6, 8: 12, 16: 12}  # vectors that are summed at once, by lanes


class Wanted:
    """How the layers that read a value would have it: the pitch of its rows, and rows of zeros."""

    def __init__(self, pitch: int, gap: int) -> None:
        self.pitch, self.gap = pitch, gap


class WholeChannelSteps(PlaneValues):
    """The convolutions that read planes and make them."""

    def __init__(self, planning: Planning) -> None:
        super().__init__(planning)
        self.sorted: dict[int, tuple[Buffer, Sorted]] = {}
        self.striding: dict[int, list[FusedLayer]] = {}  # the convolutions that read a value sorted
        self.wanted: dict[int, Wanted] = {}
        self.makers = {layer.out: layer for layer in planning.layers}

    # ------------------------------------------------------------------ who wants what

    def want(self, layer: FusedLayer) -> None:
        """Notes what a convolution over whole channels asks of the values that it reads."""
        ours = self.wish(layer.out)
        for value in (*layer.inputs, *layer.added):
            theirs = self.wanted.setdefault(value, self.wish(value))
            if value in layer.added or layer.node.pair("stride") == (1, 1):
                theirs.pitch = max(theirs.pitch, ours.pitch)
        if layer.node.pair("stride") != (1, 1):
            self.striding.setdefault(layer.inputs[0], []).append(layer)
        else:
            (above, beside), theirs = layer.node.pair("padding"), self.wanted[layer.inputs[0]]
            width = image(self.seen(layer))[2]
            theirs.pitch, theirs.gap = max(theirs.pitch, width + beside), max(theirs.gap, above)

    def wish(self, value: int) -> Wanted:
        return self.wanted.get(value) or Wanted(self.shapes[value][-1], 0)

    def whole_channels(self, layer: FusedLayer) -> WholeChannels | None:
        """What it would take to convolve whole channels; None if it cannot be done so."""
        if layer.pool or self.seen(layer) != self.shapes[layer.inputs[0]]:
            return None
        channels, height, width = image(self.seen(layer))
        _, *out = image(self.own(layer))
        (above, beside), stride = layer.node.pair("padding"), layer.node.pair("stride")
        pitch = self.wish(layer.out).pitch
        if stride == (1, 1):
            pitch = max(pitch, width + beside)
            size = (channels + 1) * (height + above + 1) * pitch
            rows = 0 if self.is_planes(layer.inputs[0]) else channels * (height + above)
        else:
            at = layouts.sorted_input([layer], (out[0], out[1]), pitch)
            pitch, size, rows = at.pitch, at.total, len(at.planes) * at.rows
        if max(size, (self.shapes[layer.out][0] + 1) * (out[0] + 1) * pitch) > MAX_PACKED:
            return None
        reach = (by_place(layer.weight).shape[2] - 1) * layer.node.pair("dilation")[0] * pitch
        length = (out[0] - 1) * pitch + out[1]
        numbers = min(TILE[self.lanes] * self.lanes, length)
        tile = channels // layer.node["groups"] * (numbers + reach)
        values = (*layer.inputs, *layer.added, layer.out)
        short = bool(self.ranges) and all(self.ranges[value] for value in values)
        return WholeChannels(length, rows * (pitch + 8), near=4 * tile < NEAR, short=short)

    def is_planes(self, value: int) -> bool:
        """Whether a value is in planes, or will be, as far as one can tell."""
        maker = self.makers.get(value)
        return value in self.planes or (
            maker is not None and maker.node.op == "conv" and not maker.pool
        )

    # ------------------------------------------------------------------ the convolution

    def conv_planes(self, layer: FusedLayer, dense: bool) -> None:
        source, at = self.plane_input(layer)
        channels, height, width = image(self.shapes[layer.out])
        made = Planes(channels, (height, width), at.pitch, self.wish(layer.out).gap)
        made, memory = self.plane_memory(layer, source, at, made)
        weights = layouts.dense_weights if dense else layouts.sparse_weights
        data = layouts.with_zeros(weights(layer, at, made), made, self.lanes)
        other, added = self.plane_added(layer, made)
        out = self.plane_output(layer, made, memory)
        length = made.length if made.plain else len(data[4])
        sizes = [len(data[1]) - 1, length, self.tile(layer, at), made.plane, made.margin, *added]
        if not made.plain:
            sizes += [len(data[2]) - len(data[3]), made.length // self.lanes * self.lanes]
        kernel, fused = "DENSE_PLANES" if dense else "CONV_PLANES", layer.fused
        self.add(kernel, layer, source, out, other=other, sizes=sizes, data=data, activation=fused)

    def plane_input(self, layer: FusedLayer) -> tuple[Buffer, Planes | Sorted]:
        """The input of a convolution, in rows as long as its result's should be."""
        value, pitch = layer.inputs[0], self.wish(layer.out).pitch
        channels, height, width = image(self.seen(layer))
        (above, beside), stride = layer.node.pair("padding"), layer.node.pair("stride")
        if stride == (1, 1):
            wish = self.wish(value)
            pitch = max(pitch, wish.pitch, width + beside)
            least = Planes(channels, (height, width), pitch, max(above, wish.gap))
            return self.in_planes(value, layer, least)
        for other in layer.added:
            if other in self.planes:
                pitch = max(pitch, self.planes[other][1].pitch)
        return self.sorted_planes(layer, pitch)

    def sorted_planes(self, layer: FusedLayer, pitch: int) -> tuple[Buffer, Sorted]:
        """The input of a convolution with a stride, for a result of this pitch at least.

        What other convolutions read of it, with the same stride, is sorted with it.
        """
        value, (_, *out) = layer.inputs[0], image(self.own(layer))
        if value in self.sorted and self.sorted[value][1].holds(layer, (out[0], out[1]), pitch):
            return self.sorted[value]
        stride = layer.node.pair("stride")
        others = [
            other
            for other in self.striding.get(value, ())
            if other.node.pair("stride") == stride and self.own(other)[1:] == self.own(layer)[1:]
        ]
        if value in self.sorted or all(other.place != layer.place for other in others):
            others = [layer]
        pitch = max(pitch, *(self.wish(other.out).pitch for other in others))
        at = layouts.sorted_input(others, (out[0], out[1]), pitch)
        channels, height, width = image(self.seen(layer))
        plain = Planes(channels, (height, width), width)
        self.sorted[value] = buffer, _ = Buffer(max(at.total, 1), kept=True), at
        source, lies = self.planes.get(value) or (self.rows(value, layer), plain)
        self.spread(layer, source, lies, at, buffer)
        return buffer, at

    def plane_added(self, layer: FusedLayer, made: Planes) -> tuple[Buffer | None, list[int]]:
        """What is added to the result, in rows as long: where it is, and how it lies."""
        if not layer.added:
            return None, [0, 0, 0]
        value = layer.added[0]
        source, at = self.in_planes(value, layer, made._replace(gap=0))
        if at.pitch != made.pitch:  # some other layer wanted it longer
            buffer, wanted = Buffer(made.total), made._replace(gap=0)
            self.spread(layer, source, at, wanted, buffer)
            source, at = buffer, wanted
        return source, [1, at.plane, at.margin]

    def plane_output(self, layer: FusedLayer, made: Planes, planes: Buffer) -> Buffer:
        """Memory for a result: `planes`, unless it has no zeros."""
        if made.plain and layer.out not in self.ends.results:
            return self.out(layer)
        self.planes[layer.out] = planes, made
        return planes

    def plane_memory(
        self, layer: FusedLayer, source: Buffer, at: Planes | Sorted, made: Planes
    ) -> tuple[Planes, Buffer]:
        """How a result lies, and memory for it: that of what it is made from, if it can be.

        Half as much then has to stay in the cache. A channel must be read as a whole before any of
        it is written, which a tile's sums are.
        """
        value, results = layer.inputs[0], self.ends.results
        depthwise = layer.node["groups"] == made.channels == len(layer.weight)
        alone = self.readers.get(value) == [layer] and value not in results
        vectors = min(TILE[self.lanes], self.tile(layer, at))
        small = not made.plain and made.length <= vectors * self.lanes
        inside = depthwise and alone and small and layer.out not in results
        if inside and isinstance(at, Planes) and at.size == made.size and at.gap >= made.gap:
            return at, source
        return made, Buffer(made.total)

    def tile(self, layer: FusedLayer, at: Planes | Sorted) -> int:
        """Vectors of a result whose inputs stay in the first-level cache; three at least."""
        planes = at.channels if isinstance(at, Planes) else len(at.planes)
        reach = (by_place(layer.weight).shape[2] - 1) * layer.node.pair("dilation")[0] * at.pitch
        numbers = CACHE // (4 * max(1, planes // layer.node["groups"]))
        return max(3, int(numbers - reach) // self.lanes)
