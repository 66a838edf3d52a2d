"""Attention, and the product of two values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.graph.operations.operation import (
    MAX_SIZE,
    Example,
    Operation,
    UnsupportedError,
    need,
    settings,
)
from asterism.graph.operations.sequences.masks import ADDED, HIDDEN, NOTHING, SHOWN, added, fit
from asterism.graph.stages import Array, Call, FusedLayer, Given, NodeLike, Program, Shape

LANES = 16  # as in kernels/program.h
QUERIES = 4  # as in kernels/layers/attention.h


class Attention(Operation):
    """Means of values, by how well their keys fit the queries; several heads side by side.

    Its inputs are queries, keys and values, one row for each token: (tokens, heads · width). Its
    weight is the mask, (queries, keys) or (heads, queries, keys), or larger: its first rows and
    columns count. Where a query may see nothing, the result is zero.

    heads   into which each row is cut
    causal  whether a token sees only itself and those before it
    mask    what the mask holds: numbers to add to the scores, or 1 for each key that is seen, or
            for each that is not
    scale   of the scores; 0 is one over the root of a head's width
    """

    name, code, arity, weights = "attention", 61, 3, 1
    defaults = settings(heads=1, causal=0, mask=ADDED, scale=0.0)
    captures = ("aten.scaled_dot_product_attention.default",)
    kernels = ("KEYS", "ATTEND")
    examples = (
        Example((5, 12), {"heads": 3}, inputs=3),
        Example((6, 8), {"heads": 2, "causal": 1, "scale": 0.7}, inputs=3),
        Example((5, 12), {"heads": 3}, ((3, 5, 5),), inputs=3),
        Example((19, 40), {"heads": 2, "mask": SHOWN}, ((19, 19),), inputs=3),
        Example((5, 8), {"mask": HIDDEN}, ((5, 5),), inputs=3),
    )

    def capture(self, call: Call) -> int:
        args = call.args
        rank = len(call.shape)
        if args["dropout_p"] or args.get("enable_gqa") or rank not in (3, 4):
            raise UnsupportedError
        found: dict[str, Any] = {"scale": args["scale"] or 0.0, "causal": int(args["is_causal"])}
        query, key, value = (args[name] for name in ("query", "key", "value"))
        mask, weights = call.mask(args["attn_mask"])
        parts = [call.value(part) for part in (query, key, value)]
        widths = [call.shape_of(part) for part in (query, key, value)]
        return attend(call, parts, widths, found | mask, weights)

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        need(all(len(shape) == 2 for shape in inputs), f"shapes {list(inputs)}")
        (queries, width), (keys, same), (count, values) = inputs
        heads = node["heads"]
        need(heads > 0 and width % heads == 0 and values % heads == 0, f"{heads} heads")
        need(width == same and keys == count, f"shapes {list(inputs)}")
        need(heads * queries * keys <= MAX_SIZE, "more tokens than one example may have")
        fit(node, given[0], heads, queries, keys)
        return (queries, values)

    def work(
        self, node: NodeLike, inputs: Sequence[Shape], nonzeros: Sequence[int | None], shape: Shape
    ) -> int:
        (queries, width), (keys, _), (_, values) = inputs
        return queries * keys * (width + values)

    def scale(self, node: NodeLike, width: int) -> float:
        return float(node.number("scale")) or 1 / math.sqrt(max(1, width // node["heads"]))

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        query, key, value = (_by_head(x, node["heads"]) for x in inputs)
        scores = query @ key.swapaxes(-1, -2) * np.float32(self.scale(node, inputs[0].shape[-1]))
        if given[0] is not None:
            scores = scores + added(node, given[0], *scores.shape[-2:])
        if node["causal"]:
            scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
        most = scores.max(-1, keepdims=True, initial=-np.inf)
        powers = np.exp(scores - np.where(np.isneginf(most), 0, most))
        total = powers.sum(-1, keepdims=True)
        found: Array = (powers / np.where(total == 0, 1, total)) @ value
        return found.swapaxes(1, 2).reshape(len(found), *shape)

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        heads, causal, kind = node["heads"], bool(node["causal"]), node["mask"]
        scale = float(node.number("scale")) or None

        def attention(query: Any, key: Any, value: Any, mask: Any) -> Any:
            parts = [x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value)]
            if mask is not None and kind != ADDED:
                mask = mask != 0 if kind == SHOWN else mask == 0
            found = torch.nn.functional.scaled_dot_product_attention(
                *parts, attn_mask=mask, is_causal=causal, scale=scale
            )
            return found.transpose(1, 2).flatten(2)

        return attention

    def emit(self, program: Program, layer: FusedLayer) -> None:
        (queries, width), (keys, _), (_, values) = (
            program.shapes[value] for value in layer.node.inputs
        )
        heads, mask = layer.node["heads"], layer.weights[0]
        padded = -(-keys // LANES) * LANES
        data = () if mask is None else (added(layer.node, mask, queries, keys),)
        pitch = queries * keys if data and len(data[0]) > 1 else 0
        sizes = [queries, keys, heads, width // heads, values // heads, padded]
        sizes += [layer.node["causal"], pitch]
        query, key, value = (program.rows(each, layer) for each in layer.inputs)
        packed = program.scratch(width * padded + keys * values + QUERIES * padded)
        program.add("KEYS", layer, key, packed, other=value, sizes=sizes)
        step: dict[str, Any] = {"other": packed, "sizes": sizes, "data": data}
        scale = self.scale(layer.node, width)
        program.add("ATTEND", layer, query, program.out(layer), **step, a=scale)


def attend(
    call: Call,
    parts: Sequence[int],
    shapes: Sequence[tuple[Any, ...]],
    found: dict[str, Any],
    weights: Sequence[Any],
) -> int:
    """Adds attention by heads, (heads, tokens, width), or without: (tokens, width).

    parts    the values: queries, keys, values
    shapes   of these, with the batch
    found    the settings
    weights  the mask, if there is one
    """
    heads = shapes[0][1] if len(call.shape) == 4 else 1
    each = zip(parts, shapes, strict=True)
    values = tuple(_tokens_first(call, part, shape, heads) for part, shape in each)
    tokens, width = _size(call.shape[-2]), call.shape[-1]
    found["heads"] = heads
    made = call.add("attention", values, found, *weights, sizes=(tokens, heads * width))
    if len(call.shape) == 3:
        return made
    sizes = (tokens, heads, width)
    return call.add("permute", (call.add("reshape", (made,), sizes),), (2, 1, 3))


def _tokens_first(call: Call, value: int, shape: tuple[Any, ...], heads: int) -> int:
    """A value by tokens, each with all heads, from one by heads."""
    if len(shape) == 3:
        return value
    if shape[1] != heads or not isinstance(shape[3], int):
        raise UnsupportedError
    turned = call.add("permute", (value,), (2, 1, 3))
    return call.add("reshape", (turned,), (_size(shape[2]), heads * shape[3]))


def _size(size: Any) -> int:
    """As a setting: −1 where it varies."""
    return size if isinstance(size, int) else -1


def _by_head(x: Array, heads: int) -> Array:
    return x.reshape(len(x), x.shape[1], heads, x.shape[2] // max(1, heads)).swapaxes(1, 2)


class MatMul(Operation):
    """Products of matrices, the last two dimensions of two values; those before are the same."""

    name, code, arity = "matmul", 62, 2
    captures = ("aten.matmul.default", "aten.bmm.default")
    kernels = ("MATMUL",)
    examples = (Example((3, 5, 5), inputs=2), Example((21, 21), inputs=2))

    def capture(self, call: Call) -> int:
        one = call.args["self"]
        other = call.args.get("other", call.args.get("mat2"))
        if not len(call.shape_of(one)) == len(call.shape_of(other)) >= 3:
            raise UnsupportedError
        written_out = self.attention(call, one, other)
        if written_out is not None:
            return written_out
        return call.add("matmul", (call.value(one), call.value(other)))

    def attention(self, call: Call, one: Any, other: Any) -> int | None:
        """As attention, where the first factor is a softmax of such products: softmax(q·kᵀ)·v."""
        scores = call.maker(call.value(one))
        if scores is None or scores.op != "softmax" or scores["dim"] != -1:
            return None
        found: dict[str, Any] = {"scale": 1.0}
        before, weights = call.maker(scores.inputs[0]), []
        if before is not None and before.op == "hide" and before.number("fill") < NOTHING:
            found |= {name: before[name] for name in ("causal", "mask")}
            weights = [*before.weights]
            before = call.maker(before.inputs[0])
        while before is not None and before.op == "scale_shift" and before.number("shift") == 0:
            found["scale"] *= before.number("factor")
            before = call.maker(before.inputs[0])
        if before is None or before.op != "matmul" or found["scale"] == 0:
            return None
        query, turned = before.inputs
        rows, values = call.shape_of(one), call.shape_of(other)
        order = (3, 1, 2) if len(rows) == 4 else (2, 1)
        width = call.width(query)
        if width is None:
            return None
        shapes = [(*rows[:-1], width), (*values[:-1], width), values]
        key = call.add("permute", (turned,), order)
        if len(rows) == 4:  # heads before tokens, as the others have them
            key = call.add("permute", (key,), (2, 1, 3))
        return attend(call, (query, key, call.value(other)), shapes, found, weights)

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        one, other = inputs
        need(len(one) == len(other) >= 2, f"shapes {list(inputs)}")
        need(one[:-2] == other[:-2] and one[-1] == other[-2], f"shapes {list(inputs)}")
        return (*one[:-1], other[-1])

    def work(
        self, node: NodeLike, inputs: Sequence[Shape], nonzeros: Sequence[int | None], shape: Shape
    ) -> int:
        return math.prod(inputs[0]) * inputs[1][-1]

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return inputs[0] @ inputs[1]

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return torch.matmul

    def emit(self, program: Program, layer: FusedLayer) -> None:
        one, other = (program.shapes[value] for value in layer.node.inputs)
        rows, inner, columns = one[-2], one[-1], other[-1]
        sizes = [math.prod(one[:-2]), rows, inner, columns, rows * inner, inner * columns]
        first, second = (program.rows(value, layer) for value in layer.inputs)
        program.add("MATMUL", layer, first, program.out(layer), other=second, sizes=sizes)


OPERATIONS = (Attention(), MatMul())
