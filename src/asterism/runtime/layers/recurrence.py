"""Layers over the rows of an image: linear layers over many of them, and recurrent layers.

Of a recurrent layer the inputs' part is one product for many steps; what is left for each step is
the recurrent matrix times the state, and the gates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import asterism.runtime.choice.cost as cost
import asterism.runtime.layers.packing as packing
from asterism.graph.operations.sequences.recurrent import directions_of
from asterism.graph.stages import Array, FusedLayer, Given
from asterism.runtime.building import Builder
from asterism.runtime.layers.covering import TURNED, orders_of, recurrent_sparse
from asterism.runtime.layers.packing import BLOCK, Data
from asterism.runtime.steps import Buffer

GROUP = 256  # outputs of a product over rows whose results are turned together, as in the kernel


class Product(NamedTuple):
    """A layer's matrix times rows of an image, by the fastest kernel.

    layer   whose matrix it is
    choice  the kernel
    data    what that reads
    other   its memory, if it needs some
    """

    layer: FusedLayer
    choice: cost.Choice
    data: Data
    other: Buffer | None

    def parts(self, rows: int) -> list[tuple[int, int]]:
        """The first row of each part, and how many it has, of all rows together.

        A kernel that takes a block of rows at once has parts of that size: what it makes of them is
        still near when it is read.
        """
        most = BLOCK if self.choice.kernel == "rows" else max(1, rows)
        return [(first, min(most, rows - first)) for first in range(0, max(1, rows), most)]


class Recurrence(Builder):
    """What recurrent layers, and linear ones over rows, add their steps by."""

    def over_rows(self, layer: FusedLayer, source: Buffer, out: Buffer, rows: int) -> cost.Choice:
        """The layer's matrix times each of many rows of an image."""
        product = self._product(layer, rows)
        self._multiply(product, source, out, 0, rows)
        return product.choice

    def _product(self, layer: FusedLayer, rows: int) -> Product:
        inputs = layer.weight.shape[1]
        choice, other = cost.over_rows(layer, rows, self.lanes), None
        if choice.kernel == "rows":
            data = packing.fc_sparse(layer, np.arange(inputs, dtype=np.int32), GROUP)
            other = Buffer((inputs + GROUP) * BLOCK)
        elif choice.kernel == "sparse":
            data = packing.fc_sparse_one(layer)
        else:
            data = packing.fc_dense(layer)
        return Product(layer, choice, data, other)

    def _multiply(
        self, product: Product, source: Buffer, out: Buffer, first: int, rows: int
    ) -> None:
        """Adds the step for `rows` from the first on; of a kernel without parts, for all."""
        layer, data = product.layer, product.data
        outputs, inputs = layer.weight.shape
        sizes = [rows, inputs, outputs]
        if product.choice.kernel == "rows":
            kernel, sizes = "FC_SPARSE_ROWS", [len(data[2]), *sizes, first]
        elif product.choice.kernel == "sparse":
            kernel, sizes = "FC_SPARSE_ONE", [*sizes, len(data[3]) // 8]
        else:
            kernel = "FC_DENSE"
        rest = {"other": product.other, "activation": layer.fused}
        self.add(kernel, layer, source, out, sizes=sizes, data=data, **rest)

    def recurrent(self, layer: FusedLayer) -> None:
        """All steps of a recurrent layer, direction by direction."""
        directions = directions_of(layer.weights)
        matrices = [given[1] for given in directions if given[1] is not None]
        steps, _ = self.seen(layer)
        units = matrices[0].shape[1]
        own = cost.recurrent(matrices, steps, layer.place)
        orders = orders_of(units, self.slice).number if own.sparse else 1
        source = self.rows(layer.inputs[0], layer)
        memory, out = self._state(layer, matrices, orders), self.out(layer)
        seconds = own.seconds
        for place, (matrix, given) in enumerate(zip(matrices, directions, strict=True)):
            product = self._product(_of_inputs(layer, given, steps), steps)
            seconds += product.choice.seconds
            bias = _or_zeros(given[3], len(matrix))
            if own.sparse:
                data = recurrent_sparse(matrix, bias, self.slice)
            else:
                data = packing.recurrent_dense(matrix, bias)
            fixed = [units, len(data[2]), not own.sparse, len(matrix), len(matrices) * units]
            fixed += [place * units, place * memory.size // len(matrices), orders, place]
            parts = product.parts(steps)[:: -1 if place else 1]
            sums = Buffer(max(rows for _, rows in parts) * len(matrix))
            for part in parts:
                self._multiply(product, source, sums, *part)
                # With a state; and the row that the cells go to, if they are wanted.
                given_state = len(layer.inputs) > 1 or part != parts[0]
                cells = steps * (part == parts[-1] and self.shapes[layer.out][0] > steps)
                sizes, kernel = [*part, *fixed, given_state, cells], layer.node.op.upper()
                self.add(kernel, layer, sums, out, other=memory, sizes=sizes, data=data)
        self.choices[layer.place] = own._replace(seconds=seconds)

    def _state(self, layer: FusedLayer, matrices: Sequence[Array], orders: int) -> Buffer:
        """Memory for each direction, one after the other, with the state that was given.

        matrices  the recurrent ones
        orders    in which the state lies there
        """
        rows, units = matrices[0].shape
        padded, cells = -(-units // TURNED) * TURNED, layer.node.op == "lstm"
        # Its state, and of a step the gates and the sums.
        apart = (orders + cells + rows // units) * padded + -(-rows // 32) * 32
        memory = Buffer(apart * len(matrices))
        for place, value in enumerate(layer.inputs[1:]):
            sizes = [len(matrices), units, apart, place * orders * padded]
            self.add("COPY_CHUNKS", layer, self.rows(value, layer), memory, sizes=sizes)
        return memory


def _of_inputs(layer: FusedLayer, direction: Given, steps: int) -> FusedLayer:
    """The linear layer that makes what the inputs add to all gates of a direction."""
    weight, bias = direction[0], direction[2]
    assert weight is not None
    whole = np.broadcast_to(np.True_, (steps, len(weight)))
    return layer._replace(weights=[weight, _or_zeros(bias, len(weight))], needed=whole)


def _or_zeros(bias: Array | None, size: int) -> Array:
    return np.zeros(size, np.float32) if bias is None else bias
