"""Convolutions over whole channels in whole numbers of 16 bits, in the place of floats.

A step for floats becomes one for whole numbers that lie alike, number by number
(kernels/layers/sixteen_bits.h). A number of a value is its scale times a whole number, by which the
largest that examples made of it is 2^13: there is room for larger ones, and for sums on the way.
A weight w that takes inputs of scale s to a result of scale t is the fraction w·s/t, in 2^15ths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asterism.graph.network import Graph
from asterism.graph.stages import FusedLayer
from asterism.kernels.library import LANES, LEVELS
from asterism.runtime.choice.cost import Choice
from asterism.runtime.steps import SCRATCH, Buffer, Planned

LARGEST = 2**13  # the whole number of a value's largest
ROOM = 4  # times as large may a number become
HUGE = 1e30  # of scales: they and their reciprocals are floats
ONE = 2**15
VECTOR = 16  # numbers that are computed at once, as in the kernel
ENTRY = np.dtype([("offset", np.int32), ("weight", np.int16, 2)])
SIZES = 10  # of a convolution's step, before what only one of 16 bits has

CONVERTED = 1.5e-10  # seconds for a number that becomes a float or was one
FASTER = frozenset(LEVELS) - {"portable"}


def may_be_short(graph: Graph, level: int) -> bool:
    """Whether a graph has ranges, and kernels of this level that are faster by them."""
    return bool(graph.ranges) and LEVELS[level] in FASTER


def shortened(steps: list[Planned], ranges: Sequence[float], level: int) -> list[Planned]:
    """The steps with convolutions in 16 bits wherever they can be.

    steps   in floats
    ranges  of each value
    level   of the kernels
    """
    return Shortened(steps, ranges, LANES[level]).steps


def seconds(steps: Sequence[Planned], choices: Mapping[int, Choice]) -> float:
    """What layers with weights should take, with what it takes to have their values in 16 bits."""
    converted = sum(step.sizes[0] for step in steps if step.kernel in ("TO_16", "FROM_16"))
    return sum(choice.seconds for choice in choices.values()) + CONVERTED * converted


def is_short(step: Planned) -> bool:
    """Whether it is a convolution in 16 bits."""
    return step.kernel == "CONV_PLANES16"


class Short(NamedTuple):
    """A value in 16 bits: its memory, and what a 1 stands for."""

    buffer: Buffer
    scale: float


class Shortened:
    """The steps of a network, each convolution over whole channels in 16 bits.

    steps   in floats
    ranges  of each value
    lanes   floats in a vector
    """

    def __init__(self, steps: Sequence[Planned], ranges: Sequence[float], lanes: int) -> None:
        self._ranges, self._lanes = ranges, lanes
        self.steps: list[Planned] = []
        self._short: dict[Buffer, Short] = {}  # by the memory that the floats have, or would have
        self._missing: set[Buffer] = set()  # floats that nobody has computed
        for step in steps:
            if step.kernel == "CONV_PLANES" and self._can_be_short(step):
                self._convolve(step)
            elif step.kernel == "SPREAD" and self._is_short(step.source, step.out):
                source = self._short[step.source]
                out = self._made(step.out, source.scale)
                self.steps.append(step._replace(kernel="SPREAD16", source=source.buffer, out=out))
            else:
                for buffer in step.buffers:
                    self._lengthen(buffer, step.layer)
                self._short.pop(step.out, None)
                self.steps.append(step)

    def _can_be_short(self, step: Planned) -> bool:
        """Whether the ranges of its values are known, and its result has a scale."""
        values = (*step.layer.inputs, *step.layer.added, step.layer.out)
        known = step.activation in ("none", "relu") and all(self._ranges[v] for v in values)
        bias = _weights(step)[1]
        return known and bool(np.isfinite(bias).all()) and 1 / HUGE < self._scale(step) < HUGE

    def _scale(self, step: Planned) -> float:
        """Of the result: a fraction is less than 1, also what an addend is multiplied by."""
        layer = step.layer
        largest = float(np.abs(_weights(step)[0]["weight"]).max(initial=0))
        least = largest * self._scale_of(step.source, layer.inputs[0])
        if step.other is not None:
            least = max(least, self._scale_of(step.other, layer.added[0]))
        return max(self._ranges[layer.out] / LARGEST, least * ONE / (ONE - 1))

    def _scale_of(self, buffer: Buffer, value: int) -> float:
        """What a 1 stands for in a value, now or once it is in 16 bits."""
        found = self._short.get(buffer)
        return found.scale if found else self._ranges[value] / LARGEST

    def _is_short(self, source: Buffer, out: Buffer) -> bool:
        """Whether a copy is of whole numbers, and not where the caller wants floats."""
        return source in self._missing and out.space == SCRATCH

    def _convolve(self, step: Planned) -> None:
        layer, (starts, channels) = step.layer, step.data[1:3]
        (entries, bias), valid = _weights(step), list(step.data[4:])
        source = self._shorten(step.source, layer.inputs[0], layer)
        other = None if step.other is None else self._shorten(step.other, layer.added[0], layer)
        scale = self._scale(step)
        short = np.empty(len(entries), ENTRY)
        short["offset"] = entries["offset"]
        short["weight"] = _whole(entries["weight"] * (source.scale / scale * ONE))[:, None]
        channels_, length, tile, *rest = [*step.sizes, *[0] * (SIZES - len(step.sizes))]
        if valid:
            flags = valid[0].view(np.uint32) != 0
            valid = [-np.pad(flags, (0, -len(flags) % VECTOR)).astype(np.int16)]
            length, rest[-1] = len(valid[0]), rest[-1] // VECTOR * VECTOR
        tile = max(1, 2 * self._lanes * tile // VECTOR)
        ratio = round(other.scale / scale * ONE) if other else 0
        self.steps.append(
            step._replace(
                kernel="CONV_PLANES16",
                source=source.buffer,
                other=other.buffer if other else None,
                out=self._made(step.out, scale),
                sizes=[channels_, length, tile, *rest, ratio],
                data=(short, starts, channels, _whole(bias / scale), *valid),
            )
        )

    def _shorten(self, buffer: Buffer, value: int, layer: FusedLayer) -> Short:
        """A value in 16 bits, for a layer that reads it."""
        if buffer not in self._short:
            made = Short(_half(buffer), self._ranges[value] / LARGEST)
            self._short[buffer] = made
            self._convert("TO_16", buffer, made.buffer, layer, buffer.size, 1 / made.scale)
        return self._short[buffer]

    def _lengthen(self, buffer: Buffer, layer: FusedLayer) -> None:
        """The floats that a step reads, if nobody has computed them yet."""
        if buffer in self._missing:
            made = self._short[buffer]
            self._convert("FROM_16", made.buffer, buffer, layer, buffer.size, made.scale)
            self._missing.remove(buffer)

    def _convert(
        self, kernel: str, source: Buffer, out: Buffer, layer: FusedLayer, count: int, by: float
    ) -> None:
        self.steps.append(Planned(kernel, source, out, layer, sizes=[count], a=by))

    def _made(self, buffer: Buffer, scale: float) -> Buffer:
        """Memory for whole numbers in the place of a buffer, whose floats are missing then."""
        found = self._short.get(buffer)
        memory = found.buffer if found else _half(buffer)
        self._short[buffer] = Short(memory, scale)
        self._missing.add(buffer)
        return memory


def _weights(step: Planned) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Entries and biases of a convolution."""
    return step.data[0], step.data[3]


def _half(buffer: Buffer) -> Buffer:
    return Buffer(-(-buffer.size // 2), kept=buffer.kept)


def _whole(numbers: npt.NDArray[Any]) -> npt.NDArray[np.int16]:
    found: npt.NDArray[np.int16] = np.clip(np.rint(numbers), 1 - ONE, ONE - 1).astype(np.int16)
    return found
