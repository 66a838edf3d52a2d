"""Values that depend on weights alone: computed once, and part of the layer before if they can be.

As of batch norms that are frozen, which networks write as products and sums of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asterism.graph.network import Node
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.constants import Constant
from asterism.graph.operations.joining import OfTwo
from asterism.graph.operations.operation import Elementwise
from asterism.graph.stages import Array, Given, Shape


class KnownValues:
    """The numbers of each value of a graph that is the same for every input.

    shapes  of all values
    """

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._shapes = shapes
        self._arrays: dict[int, Array] = {}

    def find(self, node: Node, out: int, given: Given) -> Array | None:
        """The result of a node, if it is known; from then on it is.

        node   whose inputs were asked for before
        out    the number of its result
        given  its weights
        """
        operation, inputs = OPERATIONS[node.op], [self._arrays.get(each) for each in node.inputs]
        if isinstance(operation, Constant):
            self._arrays[out] = operation.of(node, given)
            return self._arrays[out]
        known = [each[None] for each in inputs if each is not None]
        simple = operation.view or isinstance(operation, Elementwise | OfTwo)
        if not simple or not known or len(known) < len(inputs):
            return None
        with np.errstate(all="ignore"):
            result = operation.numpy(node, known, given, self._shapes[out])
        self._arrays[out] = np.ascontiguousarray(result[0], np.float32)
        return self._arrays[out]

    def as_norm(self, node: Node, out: int) -> tuple[Node, Given] | None:
        """A product or a sum of a value and one known number a channel, as a batch norm of it.

        node  that may be one
        out   the number of its result
        """
        if node.op not in ("mul", "add"):
            return None
        for value, other in (node.inputs, node.inputs[::-1]):
            known, shape = self._arrays.get(other), self._shapes[value]
            if known is None or value in self._arrays or shape != self._shapes[out]:
                continue
            if known.ndim and known.size == known.shape[0] and np.isfinite(known).all():
                numbers = np.broadcast_to(known.reshape(-1), shape[:1])
                ones, zeros = np.ones_like(numbers), np.zeros_like(numbers)
                both = (numbers, zeros) if node.op == "mul" else (ones, numbers)
                return Node("batch_norm", (value,), settings={"eps": 0.0}), [*both, zeros, ones]
        return None
