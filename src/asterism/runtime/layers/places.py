"""Dense convolutions place by place, as steps: kernels/layers/conv_places.h.

Owns which convolutions of a network run so. A value then lies with the channels of a place side by
side; to turn it costs about as much as to read it once, therefore neighbours decide together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import asterism.runtime.choice.cost as cost
from asterism.graph.operations.convolution import by_place, live_inputs
from asterism.graph.operations.operation import image
from asterism.graph.stages import Array, FusedLayer
from asterism.runtime.building import Builder
from asterism.runtime.layers.packing import Data
from asterism.runtime.layers.windows import Indices
from asterism.runtime.steps import Buffer

PANEL = 16  # outputs whose weights lie side by side


class Option(NamedTuple):
    """A convolution of a chain: seconds by its best other kernel, place by place, and to turn.

    places  infinite where it cannot be
    """

    other: float
    places: float
    turn_in: float
    turn_out: float


def choose_together(chain: Sequence[Option]) -> list[bool]:
    """Which of the convolutions, each of which reads the one before it, go place by place.

    The cheapest way through: either kernel for each, and the turning wherever they change.

    >>> fast, slow = Option(9, 1, 3, 3), Option(2, 4, 3, 3)
    >>> choose_together([slow, fast, slow, fast]), choose_together([slow, slow])
    ([False, True, True, True], [False, False])
    """
    ways: list[tuple[float, list[bool]]] = [(0.0, []), (math.inf, [])]
    for option in chain:
        (plain, plain_way), (placed, placed_way) = ways
        stay, back = plain, placed + option.turn_in
        turned, keep = plain + option.turn_in, placed
        other = (stay, plain_way) if stay <= back else (back, placed_way)
        places = (turned, plain_way) if turned <= keep else (keep, placed_way)
        ways = [
            (other[0] + option.other, [*other[1], False]),
            (places[0] + option.places, [*places[1], True]),
        ]
    last = chain[-1].turn_out if chain else 0.0
    return min(ways[0], (ways[1][0] + last, ways[1][1]))[1]


class PlaceSteps(Builder):
    """Values place by place, and the convolutions that make them."""

    def by_places(self, layer: FusedLayer) -> float:
        """Seconds that a convolution would take place by place; infinite where it cannot."""
        padding, groups = layer.node.pair("padding"), layer.node["groups"]
        whole = self.seen(layer) == self.shapes[layer.inputs[0]]
        if layer.node.op != "conv" or layer.pool or layer.added or not whole:
            return math.inf
        places = math.prod(image(self.own(layer))[1:])
        if groups == 1 and padding == (0, 0):
            return cost.dense_places(layer, places, self.lanes)
        if 1 < groups == len(layer.weight) == image(self.seen(layer))[0]:
            return cost.depthwise_places(layer, places, self.lanes, _is_usual(layer))
        return math.inf

    # ------------------------------------------------------------------ values place by place

    def rows(self, value: int, layer: FusedLayer) -> Buffer:
        if value not in self.values and value in self.places:
            self.values[value] = self.memory(value)
            channels, *size = image(self.shapes[value])
            sizes = [math.prod(size), channels]
            self.add("TURN", layer, self.places[value], self.values[value], sizes=sizes)
        return super().rows(value, layer)

    def by_place(self, value: int, layer: FusedLayer) -> Buffer | None:
        only = value not in self.values and self.shapes[value] == self.seen(layer)
        return self.places.get(value) if only else None

    def in_and_out(self, layer: FusedLayer) -> tuple[Buffer, Buffer]:
        value = layer.inputs[0]
        if value not in self.places or value in self.values:
            return super().in_and_out(layer)
        self.places[layer.out] = Buffer(self.size(layer.out))
        return self.places[value], self.places[layer.out]

    def in_places(self, layer: FusedLayer) -> Buffer:
        """A convolution's input place by place; channels that it does not read are zeros."""
        value = layer.inputs[0]
        if value not in self.places:
            channels, *size = image(self.seen(layer))
            read = np.zeros(channels, np.int32)
            read[live_inputs(layer)] = 1
            source, buffer = self.rows(value, layer), Buffer(self.size(value))
            sizes = [channels, math.prod(size)]
            self.add("TURN", layer, source, buffer, sizes=sizes, data=(read,))
            return buffer
        return self.places[value]

    # ------------------------------------------------------------------ the convolutions

    def conv_places(self, layer: FusedLayer) -> None:
        """A convolution place by place."""
        depthwise = layer.node["groups"] > 1
        if depthwise:
            source = self.in_places(layer)
            sizes, data = self._depthwise(layer)
        else:
            turned = layer.inputs[0] in self.places
            source = self.places[layer.inputs[0]] if turned else self.rows(layer.inputs[0], layer)
            data = self._dense(layer, turned)
            sizes = [len(data[2]), len(data[1]), len(layer.weight)]
        kernel = "DEPTHWISE_PLACES" if depthwise else "DENSE_PLACES"
        out = self.places[layer.out] = Buffer(self.size(layer.out))
        self.add(kernel, layer, source, out, sizes=sizes, data=data, activation=layer.fused)

    def _dense(self, layer: FusedLayer, turned: bool) -> Data:
        """Weights in panels, where each tap's input is, where each place's are, biases."""
        channels, height, width = image(self.seen(layer))
        _, *out = image(self.own(layer))
        (sh, sw), (dh, dw) = layer.node.pair("stride"), layer.node.pair("dilation")
        apart, beside = (1, channels) if turned else (height * width, 1)
        weight = by_place(layer.weight)
        down, along = np.arange(weight.shape[2]) * dh * width, np.arange(weight.shape[3]) * dw
        taps = (np.arange(channels) * apart)[:, None, None] + (down[:, None] + along) * beside
        places = (np.arange(out[0]) * sh * width)[:, None] + np.arange(out[1]) * sw
        flat = weight.reshape(len(weight), -1)
        # A tap that has no weight is left out: its input may be one that nobody has written.
        live = np.flatnonzero((flat != 0).any(0))
        panels = _in_panels(flat[:, live].T)
        return panels, _i32(taps.ravel()[live]), _i32(places.ravel() * beside), _whole(layer.bias)

    def _depthwise(self, layer: FusedLayer) -> tuple[list[int], Data]:
        """Sizes; weights tap by tap, which taps are inside of the image, biases."""
        channels, height, width = image(self.seen(layer))
        _, *out = image(self.own(layer))
        padding, stride, dilation = (
            layer.node.pair(name) for name in ("padding", "stride", "dilation")
        )
        weight = by_place(layer.weight)
        extent = weight.shape[2:]
        taps = _whole(weight.reshape(channels, -1).T)
        inside = [
            _inside(*each)
            for each in zip((height, width), out, extent, padding, stride, dilation, strict=True)
        ]
        sizes = [channels, width, *out, extent[1], *stride, *dilation, *padding, taps.shape[1]]
        sizes.append(_is_usual(layer))
        none = np.zeros(0, np.int32)
        return sizes, (taps, np.concatenate(inside).ravel(), none, _whole(layer.bias))


def _is_usual(layer: FusedLayer) -> bool:
    """Whether a convolution is of 3×3 over all places, for which there is a kernel of its own."""
    settings = [layer.node.pair(name) for name in ("padding", "stride", "dilation")]
    return by_place(layer.weight).shape[2:] == (3, 3) and settings == [(1, 1)] * 3


def _inside(size: int, out: int, extent: int, padding: int, stride: int, dilation: int) -> Indices:
    """Of each output along an axis: its first tap inside of the image, and the end of them."""
    begins = np.arange(out) * stride - padding
    first = np.clip(-(begins // dilation), 0, extent)
    last = np.clip(-((begins - size) // dilation), first, extent)
    return _i32(np.stack([first, last], 1))


def _whole(numbers: Array) -> Array:
    """With zeros up to a multiple of a panel along the last axis."""
    widths = [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % PANEL)]
    return np.ascontiguousarray(np.pad(numbers, widths))


def _in_panels(weights: Array) -> Array:
    """(taps, outputs) as panels, in each of which the weights of a tap are side by side."""
    whole = _whole(weights)
    panels = whole.reshape(len(whole), whole.shape[1] // PANEL, PANEL)
    return np.ascontiguousarray(panels.transpose(1, 0, 2))


def _i32(indices: npt.NDArray[np.int64]) -> Indices:
    return np.ascontiguousarray(indices, np.int32)
