"""Attention as a call."""

from __future__ import annotations

from collections.abc import Sequence

from asterism.export.steps.step import Buffer, Numbers, Step
from asterism.graph.operations.sequences.attention import Attention
from asterism.graph.operations.sequences.masks import added
from asterism.graph.stages import FusedLayer, Shape


def attention(
    layer: FusedLayer,
    sources: Sequence[Buffer],
    out: Buffer,
    shapes: Sequence[Shape],
    operation: Attention,
) -> Step:
    """Several heads side by side.

    sources  queries, keys and values
    shapes   of these
    """
    (queries, width), (keys, _), (_, values) = shapes
    heads, mask = layer.node["heads"], layer.weights[0]
    numbers = None if mask is None else added(layer.node, mask, queries, keys)
    pitch = queries * keys if numbers is not None and len(numbers) > 1 else 0
    parts = (queries, keys, heads, width // heads, values // heads)
    seen = (layer.node["causal"], int(numbers is not None), pitch)
    return Step(
        "attention",
        tuple(sources),
        out,
        Buffer(keys),
        (*parts, *seen),
        (operation.scale(layer.node, width),),
        (Numbers(numbers),),
        work=queries * keys * (width + values),
    )
