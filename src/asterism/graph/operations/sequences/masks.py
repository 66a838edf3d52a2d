"""What hides some numbers from others: masks that are the same for every input, and `hide`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.graph.operations.operation import Example, Operation, UnsupportedError, need, settings
from asterism.graph.stages import (
    Array,
    Call,
    FusedLayer,
    Given,
    Mask,
    NodeLike,
    Number,
    Program,
    Shape,
)

ADDED, SHOWN, HIDDEN = 0, 1, 2  # what a mask holds: numbers to add, or 1 for what is seen, or not
NOTHING = -1e8  # a score below this hides its key as minus infinity does


def fit(node: NodeLike, mask: Array | None, heads: int, rows: int, columns: int) -> None:
    """That a mask is for as many rows and columns as there are, or more: its first ones count."""
    need(node["mask"] in (ADDED, SHOWN, HIDDEN), "its kind of mask")
    if mask is not None:
        leading = math.prod(mask.shape[:-2])
        need(mask.ndim > 1 and leading in (1, heads), f"a mask of shape {mask.shape}")
        known = mask.shape[-2:]
        need(known[0] >= rows and known[1] >= columns, f"a mask for {known[0]} and {known[1]}")


def added(node: NodeLike, mask: Array, rows: int, columns: int) -> Array:
    """What a mask adds to scores: (heads or 1, rows, columns)."""
    part = mask.reshape(-1, *mask.shape[-2:])[:, :rows, :columns]
    if node["mask"] != ADDED:
        seen = (part != 0) == (node["mask"] == SHOWN)
        part = np.where(seen, np.float32(0), np.float32(-np.inf))
    return np.ascontiguousarray(part)


class Hide(Operation):
    """Numbers of a value replaced by `fill`, as its mask says, along the last two dimensions.

    mask    what the mask, its weight, holds: 1 for each number that stays, or for each other one
    causal  whether all right of the diagonal is hidden, without a mask
    """

    name, code, weights = "hide", 63, 1
    defaults = settings(causal=0, mask=SHOWN, fill=float("-inf"))
    captures = ("aten.masked_fill.Scalar", "aten.where.ScalarOther")
    kernels = ("GATHER",)
    examples = (
        Example((3, 5, 5), {"causal": 1, "fill": -3.0}),
        Example((3, 5, 5), {"mask": HIDDEN, "fill": 2.0}, ((5, 5),)),
        Example((4, 6), {"fill": 0.0}, ((4, 6),)),
    )

    def capture(self, call: Call) -> int:
        args, hides = call.args, "mask" in call.args
        fill = float(args["value"] if hides else args["other"])
        found, weights = call.mask(args["mask"] if hides else args["condition"], hides)
        if not found and not weights:
            return call.value(args["self"])
        if found.get("mask") == ADDED:
            raise UnsupportedError
        settings: dict[str, Number] = {"mask": SHOWN, **found, "fill": fill}
        return call.add("hide", (call.value(args["self"]),), settings, *weights)

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        need(len(inputs[0]) > 1, "two dimensions are needed")
        *heads, rows, columns = inputs[0]
        need(node["mask"] in (SHOWN, HIDDEN), "its kind of mask")
        need(given[0] is not None or bool(node["causal"]), "its mask is missing")
        fit(node, given[0], math.prod(heads), rows, columns)
        return inputs[0]

    def hidden(self, node: NodeLike, mask: Array | None, shape: Shape) -> Mask:
        """(heads or 1, rows, columns)."""
        if mask is None:
            hidden: Mask = np.tri(shape[-2], shape[-1]) == 0
            return hidden[None]
        return np.asarray(np.isneginf(added(node, mask, *shape[-2:])))

    def work(
        self, node: NodeLike, inputs: Sequence[Shape], nonzeros: Sequence[int | None], shape: Shape
    ) -> int:
        return 0  # it only copies

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        hidden = self.hidden(node, given[0], shape)
        hidden = hidden.reshape(shape if len(hidden) > 1 else shape[-2:])
        return np.where(hidden, np.float32(node.number("fill")), inputs[0])

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        kind, fill, sizes = node["mask"], float(node.number("fill")), shapes[0][-2:]

        def hide(x: Any, mask: Any) -> Any:
            if mask is None:
                hidden = torch.ones(sizes).tril() == 0
            else:
                part = mask[..., : sizes[0], : sizes[1]]
                hidden = part == 0 if kind == SHOWN else part != 0
            return x.masked_fill(hidden, fill)

        return hide

    def emit(self, program: Program, layer: FusedLayer) -> None:
        shape = program.shapes[layer.out]
        hidden = self.hidden(layer.node, layer.weights[0], shape)
        hidden = hidden.reshape(shape if len(hidden) > 1 else shape[-2:])
        places = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        data = (np.where(hidden, np.int32(-1), places),)
        source, fill = program.rows(layer.inputs[0], layer), float(layer.node.number("fill"))
        sizes = [places.size]
        program.add("GATHER", layer, source, program.out(layer), sizes=sizes, data=data, a=fill)


OPERATIONS = (Hide(),)
