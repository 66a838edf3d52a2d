"""Tables as long as a sequence is: the beginning of a weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.graph.operations.constants import spread
from asterism.graph.operations.operation import Example, Operation, UnsupportedError, need
from asterism.graph.stages import Array, Call, FusedLayer, Given, Mask, NodeLike, Program, Shape


class Cut(Operation):
    """The beginning of a weight, as the positions of a text: as large as its input is.

    Its settings are, for each dimension of the weight, the dimension of the input, from 1 on, whose
    size it takes, or 0 for all of it.
    """

    name, code, weights, free = "cut", 64, 1, True
    captures = ()
    kernels = ("COPY_CHUNKS",)
    examples = (
        Example((5, 3), (1, 0), ((9, 7),)),
        Example((4, 3), (0, 1, 2), ((1, 6, 5),)),
    )

    def capture(self, call: Call) -> int:
        raise UnsupportedError  # found by capture itself, whatever made it

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        (table,) = given
        need(table is not None, "its weight is missing")
        assert table is not None
        need(table.ndim == len(node.sizes), f"weight {table.shape}")
        need(all(0 <= dim <= len(inputs[0]) for dim in node.sizes), f"dimensions {node.sizes}")
        each = zip(node.sizes, table.shape, strict=True)
        sizes = tuple(inputs[0][dim - 1] if dim else whole for dim, whole in each)
        for size, whole in zip(sizes, table.shape, strict=True):
            need(size <= whole, f"a table for {whole}")
        return sizes

    def part(self, table: Array | None, shape: Shape) -> Array:
        assert table is not None
        return np.ascontiguousarray(table[tuple(slice(size) for size in shape)])

    def work(
        self, node: NodeLike, inputs: Sequence[Shape], nonzeros: Sequence[int | None], shape: Shape
    ) -> int:
        return 0  # it only copies

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return np.broadcast_to(self.part(given[0], shape), (len(inputs[0]), *shape))

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        table = given[0]
        each = zip(node.sizes, table.shape, strict=True)
        part = tuple(slice(shapes[0][dim - 1] if dim else whole) for dim, whole in each)

        return lambda x, weight: spread(x, weight[part])

    def emit(self, program: Program, layer: FusedLayer) -> None:
        program.constant(layer, self.part(layer.weights[0], program.shapes[layer.out]))

    def read(self, layer: FusedLayer, needed: Mask, shape: Shape) -> Mask:
        return np.broadcast_to(np.False_, shape)


OPERATIONS = (Cut(),)
