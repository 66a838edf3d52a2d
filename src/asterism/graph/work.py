"""How much a graph may compute for one example: a short file must not keep a machine busy.

Owns the bound, which is looked at before any memory is taken. Work is counted in multiply-adds; a
number that is written counts as several, since memory is slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asterism.errors import FormatError
from asterism.graph.network import Graph
from asterism.graph.operations import OPERATIONS
from asterism.graph.stages import Array, Shape

WRITTEN = 16  # multiply-adds that a number of a value counts as
FREE = 2**26  # multiply-adds that every network may take
PLACES = 2**22  # of an example, at each of which every weight that is not zero may be used


class Work(NamedTuple):
    """What a network may take, and what its work depends on.

    limit     multiply-adds for one example
    nonzeros  of each weight
    """

    limit: int
    nonzeros: list[int]

    @classmethod
    def allowed(cls, weights: Sequence[Array], limit: int | None = None) -> Work:
        """In proportion to the weights that a file really holds, unless a limit is given."""
        nonzeros = [int(np.count_nonzero(weight)) for weight in weights]
        return cls(FREE + PLACES * sum(nonzeros) if limit is None else limit, nonzeros)

    def check(self, graph: Graph, shapes: Sequence[Shape]) -> None:
        """FormatError where a graph would take more; `shapes` are those that `infer` found.

        >>> from asterism.graph.network import Node
        >>> graph = Graph((4,), (Node("relu", (0,)),))
        >>> Work(128, []).check(graph, [(4,), (4,)])
        """
        count = len(graph.inputs)
        given, made = shapes[:count], shapes[count:]
        done = WRITTEN * sum(map(math.prod, given))
        for place, (node, shape) in enumerate(zip(graph.nodes, made, strict=True)):
            operation = OPERATIONS[node.op]
            if not operation.view:
                inputs = [shapes[value] for value in node.inputs]
                done += WRITTEN * math.prod(shape)
                done += operation.work(node, inputs, node.given(self.nonzeros), shape)
            if done > self.limit:
                raise FormatError(
                    f"up to layer {place} ({node.op}) one example takes {done:,} multiply-adds,"
                    f" and {self.limit:,} are allowed: load it with a larger max_work"
                )
