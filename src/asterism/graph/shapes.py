"""The shape of every value of a graph, and the check that a graph and its weights fit together.

Owns the sizes: whoever runs a graph that passed here need not look at them again, and can hold all
of its values in memory. Shapes are those of one example, without the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from asterism.errors import FormatError
from asterism.graph.network import Graph, Node
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.operation import MAX_SIZE, MisfitError
from asterism.graph.stages import Array, Shape

MAX_TOTAL = 2 * MAX_SIZE  # numbers in all values of a graph together, for one example


def infer(
    graph: Graph, weights: Sequence[Array], given: Sequence[Shape] | None = None
) -> list[Shape]:
    """The shapes of the inputs and of each node's result; FormatError where they do not fit.

    graph    the network
    weights  as the graph counts them
    given    the shapes of the inputs at hand, where a dimension is free; else those of the graph

    >>> import numpy as np
    >>> infer(Graph((4,), (Node("linear", (0,), (0,)),)), [np.zeros((3, 4), np.float32)])
    [(4,), (3,)]
    """
    if graph.unknown:
        raise FormatError(f"the runtime has no operation {graph.unknown[0]}")
    if not graph.nodes:
        raise FormatError("the graph has no layers")
    shapes = [each.shape for each in graph.inputs] if given is None else list(given)
    total = 0
    for shape in shapes:
        total += _size(shape, "an input", total)
    whole = {value for value, each in enumerate(graph.inputs) if each.integer}
    for place, node in enumerate(graph.nodes):
        name = f"layer {place} ({node.op})"
        _check(node, name, len(shapes), len(weights))
        inputs = [shapes[value] for value in node.inputs]
        operation = OPERATIONS[node.op]
        try:
            shape = operation.shape(node, inputs, node.given(weights))
        except (MisfitError, ValueError, IndexError) as error:
            raise FormatError(
                f"{name} does not fit its input of shape {inputs[0]}: {error}"
            ) from None
        size = _size(shape, name, 0 if operation.view else total)
        total += 0 if operation.view else size
        if operation.view and whole.issuperset(node.inputs):
            whole.add(len(shapes))
        if operation.reads_ids and not whole.issuperset(node.inputs):
            raise FormatError(f"{name} takes whole numbers, which only an input can hold")
        shapes.append(shape)
    if any(not 0 <= value < len(shapes) for value in graph.outputs):
        raise FormatError("an output of the graph is a value that does not exist")
    return shapes


def _check(node: Node, name: str, values: int, weights: int) -> None:
    """That the values and weights it names exist, and that it has as many inputs as it takes."""
    if any(not 0 <= value < values for value in node.inputs):
        raise FormatError(f"{name} reads a value that does not exist")
    for weight in node.weights:
        if weight is not None and not 0 <= weight < weights:
            raise FormatError(f"{name} needs weight {weight} of only {weights}")
    arity = OPERATIONS[node.op].arity
    if not node.inputs or (arity > 0 and len(node.inputs) != arity):
        raise FormatError(f"{name} has {len(node.inputs)} inputs")


def _size(shape: Shape, name: str, before: int) -> int:
    """How many numbers a value has, after those `before` it."""
    size = math.prod(shape)
    # A size of 0 makes a value empty, and numpy multiplies the others all the same.
    if any(each < 0 for each in shape) or math.prod(max(1, each) for each in shape) > MAX_SIZE:
        raise FormatError(f"{name} has the impossible shape {shape}")
    if before + size > MAX_TOTAL:
        raise FormatError(
            f"the values up to {name} hold {before + size} numbers for one example, and the"
            f" runtime takes {MAX_TOTAL}: use smaller inputs"
        )
    return size
