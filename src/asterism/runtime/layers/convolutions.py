"""The steps of convolutions, for each of their kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import asterism.runtime.choice.cost as cost
import asterism.runtime.layers.packing as packing
import asterism.runtime.layers.windows as windows
from asterism.graph.operations.operation import image
from asterism.graph.stages import FusedLayer
from asterism.runtime.building import Planning
from asterism.runtime.layers.packed_rows import PackedRowSteps
from asterism.runtime.layers.packing import BLOCK
from asterism.runtime.layers.places import Option, choose_together
from asterism.runtime.layers.windows import Window
from asterism.runtime.steps import Buffer

# Kernels that leave their results as they would read them.
WHOLE, ROWS = frozenset(["planes", "quads"]), frozenset(["rows"])


class Convolutions(PackedRowSteps):
    """Strip by strip, by whole rows or channels, or by columns, as `cost` says."""

    def __init__(self, planning: Planning) -> None:
        super().__init__(planning)
        self.placed: dict[int, float] = {}
        self._note_wishes(planning.layers)
        self.placed = self._placed(planning.layers)
        if self.placed:  # their wishes do not count
            self._note_wishes(planning.layers)

    def _note_wishes(self, layers: Sequence[FusedLayer]) -> None:
        """How each convolution would have the values that it reads."""
        self.likes: dict[int, set[str]] = {}  # of values: the kernels of those that read them
        self.wanted, self.striding = {}, {}
        for layer in reversed(layers):
            if layer.node.op != "conv" or layer.place in self.placed:
                continue
            kernel = self.choose(layer)[0].kernel
            if kernel in WHOLE:
                self.want(layer)
            strided = layer.node.pair("stride") != (1, 1)  # what it reads is sorted in any case
            for value in layer.added if strided else (*layer.inputs, *layer.added):
                self.likes.setdefault(value, set()).add(kernel)

    def _placed(self, layers: Sequence[FusedLayer]) -> dict[int, float]:
        """The convolutions that go place by place, by their place in the graph: their seconds."""
        found: dict[int, float] = {}
        for chain in self._chains(layers):
            seconds = [self.by_places(layer) for layer in chain]
            if min(seconds) < math.inf:
                chosen = self._choose_together(chain, seconds)
                found |= {chain[i].place: seconds[i] for i in range(len(chain)) if chosen[i]}
        return found

    def _chains(self, layers: Sequence[FusedLayer]) -> Iterator[list[FusedLayer]]:
        """Convolutions of which each is the only one that reads the one before it."""
        chain: list[FusedLayer] = []
        for layer in layers:
            if layer.node.op != "conv":
                continue
            if chain and not self._only_reads(layer, chain[-1]):
                yield chain
                chain = []
            chain.append(layer)
        if chain:
            yield chain

    def _choose_together(self, chain: list[FusedLayer], seconds: list[float]) -> list[bool]:
        """Which of a chain go place by place; the seconds are what each would take by it."""
        here, pairs = cost.machine(), list(zip(chain, seconds, strict=True))
        if here.only or here.taken:
            return [
                time < math.inf and here.wants(_kind(layer), layer.place) for layer, time in pairs
            ]
        return choose_together([self._option(layer, time) for layer, time in pairs])

    def _only_reads(self, layer: FusedLayer, before: FusedLayer) -> bool:
        """Whether a layer is the one that reads the result of another."""
        value = layer.inputs[0]
        alone = self.readers.get(value) == [layer] and value not in self.ends.results
        return alone and value == before.out and self.seen(layer) == self.shapes[value]

    def _option(self, layer: FusedLayer, seconds: float) -> Option:
        other = self.choose(layer)[0].seconds
        turns = [cost.turn(self.size(value)) for value in (layer.inputs[0], layer.out)]
        return Option(other, seconds, *turns)

    def choose(self, layer: FusedLayer) -> tuple[cost.Choice, Window]:
        """A convolution's kernel, and how it reads its input."""
        shapes = self.seen(layer), self.own(layer)
        at = windows.window(layer, *shapes)
        rows = None
        if self.lanes >= windows.COLUMNS:
            rows = windows.by_rows(windows.window(layer, *shapes, by_rows=True), self.lanes)
        planes = self.whole_channels(layer)
        value = layer.inputs[0]
        if value in self.packed and value not in self.planes:  # for the kernel by rows
            planes = None
        pack = 0 if rows is None else self.to_pack(layer, rows)
        likes = self.likes.get(layer.out, set())
        liked = next((layout for layout in (WHOLE, ROWS) if likes and likes <= layout), frozenset())
        choice = cost.conv(layer, at, rows, pack, self.turned(layer), planes, liked, self.lanes)
        return choice, rows if rows is not None and choice.kernel == "rows" else at

    def conv(self, layer: FusedLayer) -> None:
        choice, at = self.choose(layer)
        if layer.place in self.placed:
            seconds = self.placed[layer.place]
            choice = choice._replace(kernel="places", seconds=seconds, otherwise=choice.seconds)
        self.choices[layer.place] = choice
        if choice.kernel == "places":
            self.conv_places(layer)
        elif choice.kernel in ("planes", "quads"):
            self.conv_planes(layer, dense=choice.kernel == "quads")
        elif not layer.added or (choice.kernel == "rows" and self.adds(layer, at)):
            self.conv_packed(layer, choice, at)
        else:
            self.conv_packed(layer._replace(added=(), relu=False), choice, at)
            source, other = self.rows(layer.out, layer), self.rows(layer.added[0], layer)
            step: dict[str, Any] = {"other": other, "activation": layer.fused}
            self.add("ADD", layer, source, source, **step, sizes=[source.size])

    def conv_packed(self, layer: FusedLayer, choice: cost.Choice, at: Window) -> None:
        """By one of the kernels for which inputs are packed."""
        if choice.kernel == "columns":
            self.conv_columns(layer)
            return
        if choice.kernel == "rows":
            self.conv_rows(layer, at)
            return
        packed, at = self.pack(layer, at)
        data = packing.conv_sparse(layer, at) if choice.sparse else packing.conv_dense(layer, at)
        height, width = at.out
        if layer.pool:
            _, *pooled = image(self.shapes[layer.out])
            units, width, plane = height // 2 * 2, pooled[1], pooled[0] * pooled[1]
        else:
            units, plane = at.strips if at.flat else height, height * width
        steps = (0, 8) if at.flat else (8, width)
        channels = len(data[2]) if choice.sparse else len(data[2]) // 4
        strips = 1 if at.flat else at.strips
        sizes = [channels, units, strips, at.line, at.strip_pitch, width, plane, *steps]
        sizes += [int(layer.pool), int(at.flat), at.tile]
        operation = "CONV_SPARSE" if choice.sparse else "CONV_DENSE"
        self.add(
            operation,
            layer,
            packed,
            self.out(layer),
            sizes=sizes,
            data=data,
            activation=layer.fused,
        )

    def turned(self, layer: FusedLayer) -> int | None:
        """Numbers to turn into columns and back for a convolution on them; None if it cannot."""
        if not self.many or not _reads_columns(layer):
            return None
        there = 0 if layer.inputs[0] in self.columns else self.size(layer.inputs[0])
        readers = self.readers.get(layer.out, [])
        stays = readers and all(
            reader.node.op == "linear" or _reads_columns(reader) for reader in readers
        )
        return there + (0 if stays else self.size(layer.out))

    def conv_columns(self, layer: FusedLayer) -> None:
        channels, *size = image(self.seen(layer))
        live = packing.features(layer, size[0] * size[1])
        source, slots = self.as_columns(layer.inputs[0], layer, live)
        data = packing.conv_columns(layer, slots.reshape(channels, *size))
        _, *conv = image(self.own(layer))
        _, *out = image(self.shapes[layer.out])
        if layer.pool:
            conv = [conv[0] // 2 * 2, conv[1] // 2 * 2]
        down, along = layer.node.pair("stride")
        sizes = [len(data[2]), *conv, along * BLOCK, down * size[1] * BLOCK]
        sizes += [out[1], out[0] * out[1], layer.pool]
        buffer = Buffer(self.size(layer.out) * BLOCK, columns=True)
        self.columns[layer.out] = buffer, np.arange(self.size(layer.out), dtype=np.int32)
        self.add(
            "CONV_COLUMNS",
            layer,
            source,
            buffer,
            sizes=sizes,
            data=data,
            whole=True,
            activation=layer.fused,
        )


def _kind(layer: FusedLayer) -> str:
    """A convolution place by place, as `cost` names its kind."""
    return "conv depthwise" if layer.node["groups"] > 1 else "conv places"


def _reads_columns(layer: FusedLayer) -> bool:
    """Whether a layer is a convolution that can run on columns."""
    if layer.node.op != "conv" or layer.added:
        return False
    return layer.node.pair("padding") == (0, 0) and layer.node.pair("stride")[1] <= 2
