"""Layers over the rows of an image: linear layers over many of them, and recurrent layers.

Of a recurrent layer the inputs' part is one product for all steps; what is left for each step is
the recurrent matrix times the state, and the gates.
"""

from __future__ import annotations

import numpy as np

import asterism.runtime.cost as cost
import asterism.runtime.layers.packing as packing
from asterism.graph.operations.sequences.recurrent import directions_of
from asterism.graph.stages import Array, FusedLayer, Given
from asterism.runtime.building import Builder
from asterism.runtime.layers.covering import TURNED, orders_of, recurrent_sparse, side_of
from asterism.runtime.layers.packing import BLOCK
from asterism.runtime.steps import Buffer


class Recurrence(Builder):
    """What recurrent layers, and linear ones over rows, add their steps by."""

    def over_rows(self, layer: FusedLayer, source: Buffer, out: Buffer, rows: int) -> cost.Choice:
        """The layer's matrix times each of many rows of an image, by the fastest kernel."""
        outputs, inputs = layer.weight.shape
        choice = cost.over_rows(layer.weight, rows, self.lanes)
        kernels = {"sparse": "FC_SPARSE_ONE", "rows": "FC_SPARSE_ROWS", "dense": "FC_DENSE"}
        sizes, other = [rows, inputs, outputs], None
        if choice.kernel == "rows":
            data = packing.fc_sparse(layer, np.arange(inputs, dtype=np.int32))
            sizes, other = [len(data[2]), *sizes], Buffer((inputs + outputs) * BLOCK)
        elif choice.kernel == "sparse":
            data = packing.fc_sparse_one(layer)
            sizes.append(len(data[3]) // 8)
        else:
            data = packing.fc_dense(layer)
        kernel, fused = kernels[choice.kernel], layer.fused
        self.add(kernel, layer, source, out, other=other, sizes=sizes, data=data, activation=fused)
        return choice

    def recurrent(self, layer: FusedLayer) -> None:
        """All steps of a recurrent layer."""
        directions = directions_of(layer.weights)
        matrices = [given[1] for given in directions if given[1] is not None]
        steps, _ = self.seen(layer)
        rows, units = matrices[0].shape
        source, sums = self.rows(layer.inputs[0], layer), Buffer(steps * rows * len(directions))
        choice = self.over_rows(_of_inputs(layer, directions, steps), source, sums, steps)
        own = cost.recurrent(matrices, steps)
        self.choices[layer.place] = own._replace(seconds=own.seconds + choice.seconds)
        padded, cells = -(-units // TURNED) * TURNED, layer.node.op == "lstm"
        side = side_of(self.lanes)
        orders = orders_of(units, side).number if own.sparse else 1
        # Its state, and of a step the gates and the sums.
        apart = (orders + cells + rows // units) * padded + -(-rows // 32) * 32
        memory = self._state(layer, orders * padded, apart, len(directions), units)
        out, wide = self.out(layer), len(directions) * units
        extra = self.shapes[layer.out][0] - steps
        for place, (_, matrix, _, bias) in enumerate(directions):
            assert matrix is not None
            bias = _or_zeros(bias, rows)
            if own.sparse:
                data = recurrent_sparse(matrix, bias, side)
            else:
                data = packing.recurrent_dense(matrix, bias)
            sizes = [steps, units, len(data[2]), not own.sparse]
            sizes += [rows * len(directions), place * rows, wide, place * units]
            sizes += [place * apart, orders, place, len(layer.inputs) > 1, extra]
            kernel = layer.node.op.upper()
            self.add(kernel, layer, sums, out, other=memory, sizes=sizes, data=data)

    def _state(
        self, layer: FusedLayer, size: int, apart: int, directions: int, units: int
    ) -> Buffer:
        """Memory for each direction, `apart` from the next, with the state that was given.

        size  numbers of its first part
        """
        memory = Buffer(apart * directions)
        for place, value in enumerate(layer.inputs[1:]):
            sizes = [directions, units, apart, place * size]
            self.add("COPY_CHUNKS", layer, self.rows(value, layer), memory, sizes=sizes)
        return memory


def _of_inputs(layer: FusedLayer, directions: list[Given], steps: int) -> FusedLayer:
    """The linear layer that makes what the inputs add to all gates, of all directions."""
    matrices = [given[0] for given in directions if given[0] is not None]
    weight = np.concatenate(matrices)
    biases = [_or_zeros(given[2], len(matrices[0])) for given in directions]
    whole = np.broadcast_to(np.True_, (steps, len(weight)))
    return layer._replace(weights=[weight, np.concatenate(biases)], needed=whole)


def _or_zeros(bias: Array | None, size: int) -> Array:
    return np.zeros(size, np.float32) if bias is None else bias
