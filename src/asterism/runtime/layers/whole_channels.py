"""The steps of convolutions over whole channels, whose results lie as the next one reads them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import asterism.runtime.layers.planes as layouts
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.convolution import by_place
from asterism.graph.operations.operation import image
from asterism.graph.operations.shaping import gathering
from asterism.graph.stages import FusedLayer
from asterism.runtime.building import Planning
from asterism.runtime.choice.cost import WholeChannels
from asterism.runtime.layers.cuts import Copies, Taken, moved_from, taken_from
from asterism.runtime.layers.places import PlaceSteps
from asterism.runtime.layers.planes import Planes, Sorted
from asterism.runtime.layers.windows import CACHE, MAX_PACKED, Indices
from asterism.runtime.steps import INPUT, OUTPUT, SCRATCH, SLACK, Buffer

NEAR = 2**15  # bytes of a first-level cache
TILE = {4: 6, 8: 12, 16: 12}  # vectors that are summed at once, by lanes
RUN = 16  # numbers side by side that are best copied as they are


class Moved(NamedTuple):
    """A value whose numbers are another's, at these places, or zeros (−1); and what moves them."""

    value: int
    places: Indices
    layer: FusedLayer


class Wanted:
    """How the layers that read a value would have it: the pitch of its rows, and rows of zeros."""

    def __init__(self, pitch: int, gap: int) -> None:
        self.pitch, self.gap = pitch, gap


class WholeChannelSteps(PlaceSteps):
    """Values as planes, and the convolutions that read and make them."""

    def __init__(self, planning: Planning) -> None:
        super().__init__(planning)
        self.planes: dict[int, tuple[Buffer, Planes]] = {}
        self.moved: dict[int, Moved] = {}  # which nobody has asked for yet
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
        tile = channels // layer.node["groups"] * (TILE[self.lanes] * self.lanes + reach)
        length = (out[0] - 1) * pitch + out[1]
        return WholeChannels(length, rows * (pitch + 8), near=4 * tile < NEAR)

    def is_planes(self, value: int) -> bool:
        """Whether a value is in planes, or will be, as far as one can tell."""
        maker = self.makers.get(value)
        return value in self.planes or (
            maker is not None and maker.node.op == "conv" and not maker.pool
        )

    # ------------------------------------------------------------------ values in planes

    def rows(self, value: int, layer: FusedLayer) -> Buffer:
        if value not in self.values and value in self.moved:
            self.values[value] = self.memory(value)
            plain = self.plain(value)
            if plain is None or not self.spread_moved(value, plain, self.values[value]):
                source, places, mover = self.moved[value]
                step = gathering(places, 0.0)
                self.add("GATHER", mover, self.rows(source, mover), self.values[value], **step)
        if value not in self.values and value in self.planes:
            source, at = self.planes[value]
            self.values[value] = self.memory(value)
            self.spread(layer, source, at, at._replace(pitch=at.size[1], gap=0), self.values[value])
        return super().rows(value, layer)

    def channels(self, value: int, layer: FusedLayer) -> tuple[Buffer, tuple[int, int, int]]:
        """A value as planes, as it lies: pitch, plane and margin."""
        if self.only_planes(value, layer):
            source, at = self.planes[value]
            return source, (at.pitch, at.plane, at.margin)
        _, height, width = image(self.seen(layer))
        return self.rows(value, layer), (width, height * width, 0)

    def only_planes(self, value: int, layer: FusedLayer) -> bool:
        """Whether a value lies as planes and not as plain rows, in the shape that a layer reads."""
        planes = value not in self.values and value in self.planes
        return planes and self.shapes[value] == self.seen(layer)

    def in_and_out(self, layer: FusedLayer) -> tuple[Buffer, Buffer]:
        value = layer.inputs[0]
        keeps_zeros = value in self.planes and value not in self.columns and _keeps_zeros(layer)
        if not keeps_zeros or layer.out in self.ends.results:
            return super().in_and_out(layer)
        source, at = self.planes[value]
        self.planes[layer.out] = Buffer(at.total), at
        return source, self.planes[layer.out][0]

    def in_planes(self, value: int, layer: FusedLayer, least: Planes) -> tuple[Buffer, Planes]:
        """A value in planes with at least these zeros, and rows at least as long."""
        if value in self.planes:
            found = self.planes[value][1]
            if found.pitch >= least.pitch and found.gap >= least.gap:
                return self.planes[value]
        if least.plain and self.rows(value, layer).space not in (INPUT, OUTPUT):
            return self.rows(value, layer), least
        # Also what is the caller's: beyond its end nothing may be read.
        buffer = Buffer(least.total)
        if value not in self.values and self.spread_moved(value, least, buffer):
            self.planes[value] = buffer, least
            return buffer, least
        source, at = self.planes.get(value, (None, least._replace(pitch=least.size[1], gap=0)))
        self.spread(layer, source or self.rows(value, layer), at, least, buffer)
        self.planes[value] = buffer, least
        return buffer, least

    def spread(
        self,
        layer: FusedLayer,
        source: Buffer,
        at: Planes,
        wanted: Planes | Sorted,
        out: Buffer,
        begin: int | None = None,
    ) -> None:
        """Copies planes to where they lie with other zeros, or sorted by a stride.

        layer   what it is for
        source  planes that lie as `at` says
        wanted  how they are to lie in `out`
        begin   of the first plane; by default as `at` says
        """
        if isinstance(wanted, Planes):
            planes = np.zeros((at.channels, 3), np.int32)
            planes[:, 0] = np.arange(at.channels)
            rows, margin = wanted.size[0] + wanted.gap, wanted.margin
            taken = Taken(planes, (1, 1), (0, 0), rows, wanted.pitch, wanted.plane)
        else:
            taken, margin = Taken(*wanted[:5], wanted.plane), 0
        copies = taken_from(at, at.margin if begin is None else begin, taken)
        self.add_spread(layer, source, copies, out, [wanted.pitch, wanted.plane, margin])

    def add_spread(
        self, layer: FusedLayer, source: Buffer, copies: Copies, out: Buffer, lies: list[int]
    ) -> None:
        """The step; `lies` are pitch, plane and margin of the result."""
        ends = [each.size + SLACK * (each.space == SCRATCH) for each in (source, out)]
        sizes = [len(copies.table), copies.along, copies.down, *lies, *ends, int(out.kept)]
        self.add("SPREAD", layer, source, out, sizes=sizes, data=(copies.table,))

    # ------------------------------------------------------------------ values that are moved

    def move(self, layer: FusedLayer, places: Indices, filling: float) -> None:
        """Nothing yet: who reads it has its numbers copied to where it wants them."""
        if filling and (places < 0).any():
            super().move(layer, places, filling)
            return
        value = layer.inputs[0]
        before = self.moved.get(value) if value not in self.values else None
        if before is not None and before.places.size:
            places = np.where(places < 0, -1, before.places.reshape(-1)[places])
            value = before.value
        self.moved[layer.out] = Moved(value, places.reshape(self.shapes[layer.out]), layer)

    def plain(self, value: int) -> Planes | None:
        """A value's channels without zeros; None if it is not an image."""
        shape = self.shapes[value]
        return Planes(shape[0], (shape[1], shape[2]), shape[2]) if len(shape) == 3 else None

    def spread_moved(self, value: int, wanted: Planes, out: Buffer) -> bool:
        """Copies a value that was moved to planes that lie as `wanted`; whether it can be done."""
        if value not in self.moved:
            return False
        source, places, layer = self.moved[value]
        at = self.plain(source)
        if (
            at is None
            or not places.size
            or (wanted.plain and gathering(places, 0)["sizes"][1] >= RUN)
        ):
            return False
        in_planes = source in self.planes and source not in self.values
        lies = self.planes[source][1] if in_planes else at
        copies = moved_from(lies, places, wanted.pitch)
        if copies is None:
            return False
        buffer = self.planes[source][0] if in_planes else self.rows(source, layer)
        self.add_spread(layer, buffer, copies, out, [wanted.pitch, wanted.plane, wanted.margin])
        return True

    # ------------------------------------------------------------------ the convolution

    def conv_planes(self, layer: FusedLayer, dense: bool) -> None:
        source, at = self.plane_input(layer)
        channels, height, width = image(self.shapes[layer.out])
        made = Planes(channels, (height, width), at.pitch, self.wish(layer.out).gap)
        in_place = self.in_place(layer, at, made)
        if in_place:
            made = at
        weights = layouts.dense_weights if dense else layouts.sparse_weights
        data = layouts.with_zeros(weights(layer, at, made), made, self.lanes)
        other, added = self.plane_added(layer, made)
        out = self.plane_output(layer, made, source if in_place else Buffer(made.total))
        sizes = [
            len(data[1]) - 1,
            made.length,
            self.tile(layer, at),
            made.plane,
            made.margin,
            *added,
        ]
        if not made.plain:
            vectors = made.length // self.lanes
            sizes[1] = len(data[4])
            sizes += [len(data[2]) - len(data[3]), vectors * self.lanes]
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

    def in_place(self, layer: FusedLayer, at: Planes | Sorted, made: Planes) -> bool:
        """Whether a result can take the place of what it is made from, channel by channel.

        Half as much then has to stay in the cache. A channel must be read as a whole before any of
        it is written, which a tile's sums are.
        """
        value = layer.inputs[0]
        depthwise = layer.node["groups"] == made.channels == len(layer.weight)
        alone = self.readers.get(value) == [layer] and not {value, layer.out} & set(
            self.ends.results
        )
        fits = isinstance(at, Planes) and at.size == made.size and at.gap >= made.gap
        vectors = min(TILE[self.lanes], self.tile(layer, at)) * self.lanes
        return fits and depthwise and alone and not made.plain and made.length <= vectors

    def tile(self, layer: FusedLayer, at: Planes | Sorted) -> int:
        """Vectors of a result whose inputs stay in the first-level cache; three at least."""
        planes = at.channels if isinstance(at, Planes) else len(at.planes)
        reach = (by_place(layer.weight).shape[2] - 1) * layer.node.pair("dilation")[0] * at.pitch
        numbers = CACHE // (4 * max(1, planes // layer.node["groups"]))
        return max(3, int(numbers - reach) // self.lanes)


def _keeps_zeros(layer: FusedLayer) -> bool:
    """Whether a layer that treats each number alike makes zeros of zeros."""
    nothing = np.zeros((1, 1), np.float32)
    with np.errstate(all="ignore"):  # a damaged network may have any settings
        made = OPERATIONS[layer.node.op].numpy(layer.node, [nothing], layer.weights, (1,))
    return made.shape == nothing.shape and not made.any()
