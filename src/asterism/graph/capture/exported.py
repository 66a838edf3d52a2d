"""What a node of a program of `torch.export` is: its name, arguments, shape and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from asterism.graph.operations.operation import UnsupportedError

ZEROS = ("aten.zeros.default", "aten.new_zeros.default")


def shape_of_result(node: fx.Node) -> tuple[Any, ...] | None:
    """The shape of a node's result, or of the first of several; None where that is a number."""
    result = node.meta.get("val")
    result = result[0] if isinstance(result, tuple | list) else result
    return tuple(map(_settled, result.shape)) if isinstance(result, Tensor) else None


def _settled(size: Any) -> Any:
    """A size that torch was to leave open and found to be one number, as that."""
    known = isinstance(size, torch.SymInt) and size.node.expr.is_number
    return int(size.node.expr) if known else size


def free_dimension(shape: Sequence[Any]) -> int:
    """The dimension whose size is not known in advance, but for the batch; 0 where all are."""
    return next((dim for dim, size in enumerate(shape) if dim and not isinstance(size, int)), 0)


def known_sizes(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """With −1 for one that varies from call to call; UnsupportedError for more of them."""
    known = tuple(size if isinstance(size, int) else -1 for size in sizes)
    if len([size for size in sizes if not isinstance(size, int)]) > 1:
        raise UnsupportedError
    return known


def symbol(size: Any) -> Any:
    """A size as an expression: to compare torch's own would make it decide."""
    return size.node.expr if isinstance(size, torch.SymInt) else size


def shares_memory(node: fx.Node) -> bool:
    """Whether the result is, or may be, the first argument's memory."""
    return any(each.alias_info is not None for each in schema(node).returns)


def schema(node: fx.Node) -> Any:
    """What the operation takes and gives; every node but inputs and outputs has one."""
    return node.target._schema  # type: ignore[union-attr]


def name_of(node: fx.Node) -> str:
    return str(node.target)


def arguments(node: fx.Node) -> dict[str, Any]:
    """All arguments by name, defaults included."""
    formal = schema(node).arguments
    values = {argument.name: argument.default_value for argument in formal}
    return {
        **values,
        **{argument.name: value for argument, value in zip(formal, node.args, strict=False)},
        **node.kwargs,
    }
