"""From a graph to the layers that really run: norms folded, activations and pooling drawn in.

Owns what is merged and what is dead. How a layer computes is the program's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from asterism.graph.network import Graph, Node
from asterism.graph.operations import OPERATIONS
from asterism.graph.stages import Array, FusedLayer, Given, Mask, Shape
from asterism.runtime.known_values import KnownValues


def lower(graph: Graph, shapes: Sequence[Shape], weights: Sequence[Array]) -> list[FusedLayer]:
    """The layers in order, without those that nothing reads.

    graph    the network
    shapes   of the inputs and of each node's result, as `infer` found them
    weights  as the graph counts them
    """
    layers: list[FusedLayer] = []
    uses = Counter(value for node in graph.nodes for value in node.inputs)
    uses.update(graph.outputs)
    roots = memory(graph)
    makers: dict[int, int] = {}  # of each value: the place in `layers` of the one that makes it
    known = KnownValues(shapes)
    for place, node in enumerate(graph.nodes):
        out = place + len(graph.inputs)
        given: Given = node.given(weights)
        numbers = known.find(node, out, given)
        if OPERATIONS[node.op].view:
            # No layer at all. As it has no maker, nothing after it is merged through it: that would
            # see the value in another shape.
            continue
        if numbers is not None:
            node, given = Node("weight", (0,)), [numbers]
        layer = FusedLayer(place, node, tuple(roots[value] for value in node.inputs), out, given)
        then, given = known.as_norm(node, out) or (node, given)
        # Only a value that nobody else reads may vanish inside of the layer that makes it.
        maker = makers.get(then.inputs[0]) if uses[then.inputs[0]] == 1 else None
        merged = None if maker is None else _merge(layers[maker], then, given, shapes)
        if node.op == "add" and merged is None:
            maker, merged = _with_sum(layers, makers, node, roots, uses, shapes)
        if maker is not None and merged is not None:
            # It keeps its place in the order, and now makes the later value.
            layers[maker], makers[out] = merged._replace(out=out), maker
        else:
            makers[out] = len(layers)
            layers.append(layer)
    layers.sort(key=lambda layer: layer.out)  # after all that each of them reads
    return _mark_needed(layers, shapes, [roots[value] for value in graph.outputs])


def memory(graph: Graph) -> list[int]:
    """For each value, the value in whose memory it lies: itself, unless it is a view."""
    roots = list(range(len(graph.inputs)))
    for node in graph.nodes:
        view = OPERATIONS[node.op].view
        roots.append(roots[node.inputs[0]] if view else len(roots))
    return roots


def _merge(
    before: FusedLayer, node: Node, given: Given, shapes: Sequence[Shape]
) -> FusedLayer | None:
    """`before` with the layer of `node` after it, where its kernels can do both at once."""
    return OPERATIONS[before.node.op].absorb(before, node, given, shapes[before.out])


def _with_sum(
    layers: Sequence[FusedLayer],
    makers: Mapping[int, int],
    node: Node,
    roots: Sequence[int],
    uses: Mapping[int, int],
    shapes: Sequence[Shape],
) -> tuple[int | None, FusedLayer | None]:
    """The convolution, and its place, that can add the other value of a sum to its own result.

    Rather one that comes after the other value is made; else it will have to wait for that.
    """
    both = node.inputs, node.inputs[::-1]
    for waits, (value, other) in product((False, True), both):
        place, root = makers.get(value), roots[other]
        if place is None or uses[value] > 1 or shapes[value] != shapes[other] or value == other:
            continue
        layer, made = layers[place], makers.get(root, -1)
        plain = layer.node.op == "conv" and not (layer.relu or layer.pool or layer.added)
        # The other has to be seen as it was made.
        if plain and (waits or made < place) and shapes[root] == shapes[other]:
            return place, layer._replace(added=(root,))
    return None, None


def _mark_needed(
    layers: list[FusedLayer], shapes: Sequence[Shape], results: Sequence[int]
) -> list[FusedLayer]:
    """The layers that anything reads, each with a mask of what is read of its result.

    From the end to the beginning: all of the network's results are needed, and of every other value
    what the layers after it read for the part of their own results that is needed. A result that
    every reader has pruned need not be computed, nor what only such results need.
    """
    # A mask that is true everywhere, or alike in all places of a channel, is spread by
    # `broadcast_to` and takes no memory: values may be large, and most of them are read as a whole.
    needed: dict[int, Mask] = {value: np.broadcast_to(np.True_, shapes[value]) for value in results}
    living: list[FusedLayer] = []
    for layer in reversed(layers):
        # All readers of this layer came before in this order: its mask is complete.
        mine = needed.get(layer.out)
        if mine is None or not mine.any():
            continue
        living.append(layer._replace(needed=mine))
        for value, seen in zip(layer.inputs, layer.node.inputs, strict=True):
            # The layer may see the value's memory in another shape than its maker.
            read = OPERATIONS[layer.node.op].read(living[-1], mine, shapes[seen])
            read = read.reshape(shapes[value])
            needed[value] = needed[value] | read if value in needed else read
        for value in layer.added:
            needed[value] = needed[value] | mine if value in needed else mine
    return living[::-1]
