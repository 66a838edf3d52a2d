"""Embeddings: a row of a table for each id."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.graph.operations.operation import MAX_IDS, Example, Operation, need
from asterism.graph.stages import Array, Call, FusedLayer, Given, Mask, NodeLike, Program, Shape


class Embedding(Operation):
    """A row of the weight for each number of an input with whole numbers."""

    name, code, weights = "embedding", 60, 1
    reads_ids = True
    captures = ("aten.embedding.default",)
    kernels = ("EMBED",)
    examples = (
        Example((7,), weights=((9, 5),), integer=True),
        Example((2, 3), weights=((9, 4),), integer=True),
    )

    def capture(self, call: Call) -> int:
        return call.add("embedding", (call.value(call.args["indices"]),), (), call.args["weight"])

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        (table,) = given
        need(table is not None and table.ndim == 2, "its weight is missing or not a matrix")
        assert table is not None
        need(0 < len(table) <= MAX_IDS, f"a table of {len(table)} rows")
        return (*inputs[0], table.shape[1])

    def work(
        self, node: NodeLike, inputs: Sequence[Shape], nonzeros: Sequence[int | None], shape: Shape
    ) -> int:
        return 0  # it only copies

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        assert given[0] is not None
        return given[0][np.clip(inputs[0], 0, len(given[0]) - 1).astype(np.int64)]

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return torch.nn.functional.embedding

    def emit(self, program: Program, layer: FusedLayer) -> None:
        source, count = program.rows(layer.inputs[0], layer), math.prod(program.seen(layer))
        rows, width = layer.weight.shape
        sizes, data = [count, width, rows], (layer.weight,)
        program.add("EMBED", layer, source, program.out(layer), sizes=sizes, data=data)

    def read(self, layer: FusedLayer, needed: Mask, shape: Shape) -> Mask:
        return np.asarray(needed.any(-1))


OPERATIONS = (Embedding(),)
