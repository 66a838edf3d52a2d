"""Every operation in plain numpy: slow and plain, what the kernels are measured against.

Runs where no compiled kernel loads, and for inputs that are not finite: a pruned weight times
infinity is not zero, so there no weight may be skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.graph.network import Graph
from asterism.graph.operations import OPERATIONS
from asterism.graph.stages import Array, Shape


def run(graph: Graph, shapes: Sequence[Shape], weights: Sequence[Array], *xs: Array) -> Any:
    """The network's answer to a batch: an array, or a tuple of them where it has several outputs.

    shapes   of the inputs and of each node's result, as `infer` found them
    weights  as the graph counts them
    xs       the batch of each input; whole numbers as floats too
    """
    values = [*xs]
    with np.errstate(all="ignore"):
        for node, shape in zip(graph.nodes, shapes[len(xs) :], strict=True):
            inputs = [values[value] for value in node.inputs]
            out = OPERATIONS[node.op].numpy(node, inputs, node.given(weights), shape)
            values.append(np.ascontiguousarray(out, np.float32))
    results = tuple(values[value] for value in graph.outputs)
    return results if len(results) > 1 else results[0]
