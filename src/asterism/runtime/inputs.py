"""The inputs of a network: what it takes, checked before anything runs.

Owns the lines that a caller reads who gives a wrong number of inputs, another type or shape, an id
without a row in its table, or a sequence that is too long.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from asterism.errors import FormatError, InputError
from asterism.graph.network import Graph
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.operation import MAX_IDS
from asterism.graph.shapes import infer
from asterism.graph.stages import Array, Shape
from asterism.runtime.lowering import memory

Shapes = tuple[Shape, ...]


class Inputs:
    """What a graph with these weights takes."""

    def __init__(self, graph: Graph, weights: Sequence[Array]) -> None:
        self._graph, self._weights = graph, weights
        self._ids = _known_ids(graph, weights)

    def checked(self, xs: Sequence[npt.NDArray[Any]]) -> list[Array]:
        """A batch for each input, as floats; InputError for what the network does not take."""
        given = self._graph.inputs
        if len(xs) != len(given):
            raise InputError(f"the network takes {len(given)} inputs, not {len(xs)}")
        found = [contiguous(x, self._name(i), self._ids.get(i)) for i, x in enumerate(xs)]
        for place, (x, expected) in enumerate(zip(found, given, strict=True)):
            if not expected.takes(x.shape[1:]):
                self.refuse(x, place)
        counts = [len(x) for x in found]
        if len(set(counts)) > 1:
            raise InputError(f"the inputs must be batches of one size, not of {counts}")
        return found

    def refuse(self, x: Array, place: int = 0) -> NoReturn:
        """The error for an input of another shape."""
        expected = self._graph.inputs[place]
        sizes = ["N", *map(str, expected.shape)]
        if expected.free:
            sizes[expected.free] = "any"
        raise InputError(
            f"{self._name(place)} must have the shape ({', '.join(sizes)}), not {x.shape}"
        )

    def example(self, batch: int) -> tuple[npt.NDArray[Any], ...]:
        """Random inputs that the network takes, a batch for each."""
        draw, found = np.random.default_rng(0), list[npt.NDArray[Any]]()
        for place, each in enumerate(self._graph.inputs):
            shape, ids = (batch, *each.shape), self._ids.get(place)
            numbers = draw.random(shape, np.float32)
            found.append(numbers if ids is None else draw.integers(0, ids, shape))
        return tuple(found)

    def too_long(self, shapes: Shapes) -> str | None:
        """Which input is longer than the network's tables and masks, or all its values, allow."""
        for place, each in enumerate(self._graph.inputs):
            length = shapes[place][each.free - 1] if each.free else 0
            longest = self._longest(shapes, place, length)
            if 0 < longest < length:
                return (
                    f"{self._name(place)} is a sequence of {length}, and the network takes up to"
                    f" {longest}"
                )
        return None

    def _longest(self, shapes: Shapes, place: int, length: int) -> int:
        """Up to how many tokens of an input the network takes, where the others stay; 0 if none."""
        axis = self._graph.inputs[place].free - 1
        before, after = shapes[place][:axis], shapes[place][axis + 1 :]

        def refuses(n: int) -> bool:
            shape = (*before, n, *after)
            return not self._takes((*shapes[:place], shape, *shapes[place + 1 :]))

        return bisect(range(1, length + 1), False, key=refuses)

    def _takes(self, shapes: Shapes) -> bool:
        try:
            infer(self._graph, self._weights, shapes)
        except FormatError:
            return False
        return True

    def _name(self, place: int) -> str:
        return "the input" if len(self._graph.inputs) == 1 else f"input {place + 1}"


def contiguous(x: npt.NDArray[Any], name: str, known: int | None = None) -> Array:
    """A batch as floats, one after the other in memory.

    x      the batch
    name   of the input, for errors
    known  how many ids there are, where these are what it holds
    """
    try:
        array = np.asarray(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be an array of numpy's: {error}") from error
    wanted = "floating-point" if known is None else "whole"
    if array.dtype.kind not in ("f" if known is None else "iu"):
        raise InputError(f"{name} must be of {wanted} numbers, not {array.dtype}")
    if array.ndim == 0:
        raise InputError(f"{name} must be a batch, not a single number")
    if known is not None:
        unknown = array[(array < 0) | (array >= known)]
        if unknown.size:
            raise InputError(f"{name} holds {unknown[0]}, and the network knows 0 to {known - 1}")
    return np.ascontiguousarray(array, np.float32)


def _known_ids(graph: Graph, weights: Sequence[Array]) -> dict[int, int]:
    """Of each input with whole numbers, how many there are for it: those that every table has."""
    known = {place: MAX_IDS for place, each in enumerate(graph.inputs) if each.integer}
    roots = memory(graph)
    for node in graph.nodes:
        if OPERATIONS[node.op].reads_ids:
            table, root = node.given(weights)[0], roots[node.inputs[0]]
            assert table is not None
            known[root] = min(known[root], len(table))
    return known
