"""Fully connected layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asterism.graph.operations.activations import rectified
from asterism.graph.operations.norms import folded
from asterism.graph.operations.operation import Example, Operation, need
from asterism.graph.stages import Array, Call, FusedLayer, Given, Mask, NodeLike, Program, Shape


class Linear(Operation):
    """A matrix times the last dimension; how it runs is `linear` in runtime/program.py."""

    name, code = "linear", 2
    weights = 2
    captures = ("aten.linear.default",)
    kernels = (
        "FC_SPARSE_ONE",
        "FC_SPARSE",
        "FC_SPARSE_ROWS",
        "FC_DENSE",
        "TO_COLUMNS",
        "FROM_COLUMNS",
    )
    examples = (
        Example((7,), weights=((5, 7), (5,))),
        Example((3, 7), weights=((20, 7), None)),
    )

    def capture(self, call: Call) -> int:
        return call.layer("linear", (), call.args["weight"], call.args["bias"])

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        weight, bias = given
        need(weight is not None and weight.ndim == 2, "its weight is missing or not a matrix")
        assert weight is not None
        need(bool(inputs[0]) and inputs[0][-1] == weight.shape[1], f"weight {weight.shape}")
        need(bias is None or bias.shape == weight.shape[:1], "its bias has another size")
        return (*inputs[0][:-1], weight.shape[0])

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        assert given[0] is not None
        out: Array = inputs[0] @ given[0].T
        return out if given[1] is None else out + given[1]

    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        weight, bias = given
        outputs, inputs = weight.shape
        module = torch.nn.Linear(inputs, outputs, bias is not None, device="meta")
        return with_weights(torch, module, weight, bias)

    def emit(self, program: Program, layer: FusedLayer) -> None:
        program.linear(layer)

    def absorb(
        self, layer: FusedLayer, node: NodeLike, given: Given, shape: Shape
    ) -> FusedLayer | None:
        if node.op == "batch_norm":
            # Of several rows a norm scales each by itself, and not each output.
            return folded(layer, node, given) if len(shape) == 1 and not layer.relu else None
        return rectified(layer, node)

    def read(self, layer: FusedLayer, needed: Mask, shape: Shape) -> Mask:
        if needed.ndim > 1:
            return super().read(layer, needed, shape)
        read: Mask = (layer.weight[needed] != 0).any(0)
        return read


def with_weights(torch: Any, module: Any, weight: Any, bias: Any) -> Any:
    """A torch module that was made without memory, with its weights."""
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None:
            is_parameter = isinstance(given, torch.nn.Parameter)
            setattr(module, name, given if is_parameter else torch.nn.Parameter(given))
    return module.requires_grad_(False)


OPERATIONS = (Linear(),)
