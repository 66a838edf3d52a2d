"""Values as planes, with zeros between their rows; and values that are others' numbers, moved."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.operation import image
from asterism.graph.operations.shaping import gathering
from asterism.graph.stages import FusedLayer
from asterism.runtime.building import Planning
from asterism.runtime.layers.cuts import Copies, moved_from, taken_from
from asterism.runtime.layers.places import PlaceSteps
from asterism.runtime.layers.planes import Planes, Sorted
from asterism.runtime.layers.windows import Indices
from asterism.runtime.steps import INPUT, OUTPUT, SCRATCH, SLACK, Buffer

RUN = 16  # numbers side by side that are best copied as they are


class Moved(NamedTuple):
    """A value whose numbers are another's, at these places, or zeros (−1); and what moves them."""

    value: int
    places: Indices
    layer: FusedLayer


class PlaneValues(PlaceSteps):
    """Where values lie as planes, and the steps that bring them there and back."""

    def __init__(self, planning: Planning) -> None:
        super().__init__(planning)
        self.planes: dict[int, tuple[Buffer, Planes]] = {}
        self.moved: dict[int, Moved] = {}  # copied when something asks for them

    # ------------------------------------------------------------------ values in planes

    def rows(self, value: int, layer: FusedLayer) -> Buffer:
        if value not in self.values and value in self.moved:
            self.values[value] = self.memory(value)
            plain, moved = self.plain(value), self.moved[value]
            if plain is None or not self.spread_moved(value, plain, self.values[value]):
                step, whole = gathering(moved.places, 0.0), self.rows(moved.value, moved.layer)
                self.add("GATHER", moved.layer, whole, self.values[value], **step)
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
        margin = wanted.margin if isinstance(wanted, Planes) else 0
        if isinstance(wanted, Planes):
            wanted = wanted.each()
        copies = taken_from(at, at.margin if begin is None else begin, wanted)
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
        if at is None or not places.size or (wanted.plain and _run(places) >= RUN):
            return False
        in_planes = source in self.planes and source not in self.values
        lies = self.planes[source][1] if in_planes else at
        copies = moved_from(lies, places, wanted.pitch)
        if copies is None:
            return False
        buffer = self.planes[source][0] if in_planes else self.rows(source, layer)
        self.add_spread(layer, buffer, copies, out, [wanted.pitch, wanted.plane, wanted.margin])
        return True


def _run(places: Indices) -> int:
    """How many numbers stay side by side."""
    return int(gathering(places, 0)["sizes"][1])


def _keeps_zeros(layer: FusedLayer) -> bool:
    """Whether a layer that treats each number alike makes zeros of zeros."""
    nothing = np.zeros((1, 1), np.float32)
    with np.errstate(all="ignore"):  # a damaged network may have any settings
        made = OPERATIONS[layer.node.op].numpy(layer.node, [nothing], layer.weights, (1,))
    return made.shape == nothing.shape and not made.any()
