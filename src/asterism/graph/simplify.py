"""Layers that only undo each other, left out while a graph is made."""

from __future__ import annotations

from collections.abc import Callable

from asterism.graph.network import Node


def simplified(
    node: Node, maker: Callable[[int], Node | None], sizes: tuple[int, ...] | None
) -> Node:
    """Two permutations, or two of x · factor + shift, as one; a view of a view as the last of them.

    maker  gives the layer that makes a value, or None for an input of the network
    sizes  of the result, where they are known
    """
    before = maker(node.inputs[0]) if len(node.inputs) == 1 else None
    if before is None or not before.known:
        return node
    if node.op == before.op == "permute":
        order = tuple(before.sizes[dim - 1] for dim in node.sizes)
        return Node("permute", before.inputs, settings=order)
    if node.op == before.op == "scale_shift":
        factor, shift = node.number("factor"), node.number("shift")
        both = {
            "factor": factor * before.number("factor"),
            "shift": factor * before.number("shift") + shift,
        }
        return Node("scale_shift", before.inputs, settings=both)
    sizes = node.sizes if node.op == "reshape" else sizes
    views = ("reshape", "flatten")
    if node.op in views and before.op in views and sizes is not None:
        return simplified(Node("reshape", before.inputs, settings=sizes), maker, sizes)
    return node


def is_nothing(node: Node, shape: tuple[int, ...] | None) -> bool:
    """Whether it gives its input, of this shape, as it is; −1 is the size that varies."""
    if node.op == "permute":
        return node.sizes == tuple(range(1, len(node.sizes) + 1))
    if node.op == "scale_shift":
        return (node.number("factor"), node.number("shift")) == (1, 0)
    return node.op == "reshape" and node.sizes == shape
