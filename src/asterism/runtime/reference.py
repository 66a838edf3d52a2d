"""Every operation in plain numpy: slow and plain, what the kernels are measured against.

Runs where no compiled kernel loads, and for inputs that are not finite: a pruned weight times
infinity is not zero, so there no weight may be skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asterism.graph.network import Graph
from asterism.graph.operations import OPERATIONS
from asterism.graph.stages import Array, Shape


def run(graph: Graph, shapes: Sequence[Shape], weights: Sequence[Array], x: Array) -> Array:
    """The network's answer to a batch.

    shapes   of the input and of each node's result, as `infer` found them
    weights  as the graph counts them
    x        the batch
    """
    values = [x]
    with np.errstate(all="ignore"):
        for node, shape in zip(graph.nodes, shapes[1:], strict=True):
            inputs = [values[value] for value in node.inputs]
            out = OPERATIONS[node.op].numpy(node, inputs, node.given(weights), shape)
            values.append(np.ascontiguousarray(out, np.float32))
    return values[-1]
