"""What an exported program computes from its weights and from sizes alone, never from its inputs.

Masks and tables of positions are such values: `tril(ones(T, T))`, `mask[:T, :T] == 0`,
`positions(arange(T))`. Owns how they are found and what they are: a mask in one of the forms of
attention, or the first rows of a weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from asterism.graph.operations.operation import UnsupportedError
from asterism.graph.operations.sequences.masks import ADDED, HIDDEN, NOTHING, SHOWN


class FixedValues:
    """The values of a program that need no inputs, for sizes that may differ from call to call."""

    def __init__(self, program: ExportedProgram, weights: Mapping[str, int]) -> None:
        signature, tensors = program.graph_signature, {**program.state_dict, **program.constants}
        inner = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        self.held = {name: tensors[outer] for name, outer in inner.items()}
        self.weights = weights
        self.batches: set[Any] = set()  # the symbols of the batch: no value may depend on them
        self._fixed: dict[fx.Node, bool] = {}

    def is_fixed(self, node: Any) -> bool:
        """Whether it is a tensor, or a number, that no input is needed for."""
        if not isinstance(node, fx.Node):
            return True
        if node not in self._fixed:
            self._fixed[node] = self._is_fixed(node)
        return self._fixed[node]

    def _is_fixed(self, node: fx.Node) -> bool:
        found = node.meta.get("val")
        if isinstance(found, torch.SymInt):
            return not self.batches & found.node.expr.free_symbols
        if node.op == "placeholder":
            return node.name in self.held
        return node.op == "call_function" and all(map(self.is_fixed, node.all_input_nodes))

    def at(self, node: fx.Node, sizes: Mapping[Any, int]) -> Any:
        """The value where symbols have these sizes."""
        found = node.meta.get("val")
        if isinstance(found, torch.SymInt):
            return int(found.node.expr.xreplace(dict(sizes)))
        if node.op == "placeholder":
            return self.held[node.name]
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda each: self.at(each, sizes))
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def samples(self, node: fx.Node) -> list[Tensor]:
        """The value at the sizes of the example, and at others where they are free."""
        symbols: dict[Any, int] = {}
        for each in self.ancestors(node):
            size = each.meta.get("val")
            if isinstance(size, torch.SymInt):
                for symbol in size.node.expr.free_symbols:
                    symbols[symbol] = size.node.shape_env.backed_var_to_val[symbol]
        found = [self.at(node, symbols)]
        if symbols:
            found.append(self.at(node, {symbol: size - 1 for symbol, size in symbols.items()}))
        return found

    def ancestors(self, node: fx.Node) -> Iterator[fx.Node]:
        """The node and all that it is made from."""
        yield node
        if not isinstance(node.meta.get("val"), torch.SymInt):
            for each in node.all_input_nodes:
                yield from self.ancestors(each)

    def sources(self, node: fx.Node) -> list[fx.Node]:
        """The weights that it is made from."""
        return [each for each in dict.fromkeys(self.ancestors(node)) if each.name in self.weights]

    def mask(self, node: Any, hides: bool = False) -> tuple[dict[str, int], tuple[Any, ...]]:
        """The settings of attention, and its weight, for a mask.

        hides  whether true is what is hidden, and not what is seen
        """
        if node is None:
            return {}, ()
        if not isinstance(node, fx.Node) or not self.is_fixed(node):
            raise UnsupportedError
        masks = [_added(each.logical_not() if hides else each) for each in self.samples(node)]
        if not any(mask.any() for mask in masks):
            return {}, ()
        if all(mask.shape[0] == 1 and torch.equal(mask[0], _causal(mask)) for mask in masks):
            return {"causal": 1}, ()
        for source in self.sources(node):
            for kind in (SHOWN, HIDDEN) if hides else (ADDED, SHOWN, HIDDEN):
                if all(_is_part(mask, self.held[source.name], kind) for mask in masks):
                    return {"mask": kind}, (source,)
        raise UnsupportedError

    def table(self, node: fx.Node) -> fx.Node:
        """The weight of which a value is the first rows, columns and so on."""
        if not self.is_fixed(node):
            raise UnsupportedError
        found = self.samples(node)
        for source in self.sources(node):
            if all(_begins(self.held[source.name], each) for each in found):
                return source
        raise UnsupportedError


def _added(mask: Tensor) -> Tensor:
    """What a mask adds to scores: (heads or 1, queries, keys)."""
    if mask.dim() < 2 or mask.shape[:-3].numel() != 1:
        raise UnsupportedError
    mask = mask.reshape(-1, *mask.shape[-2:])
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
    return torch.where(mask < NOTHING, -torch.inf, mask.float())


def _causal(mask: Tensor) -> Tensor:
    return torch.full(mask.shape[1:], -torch.inf).triu(1)


def _is_part(mask: Tensor, weight: Tensor, kind: int) -> bool:
    """Whether a mask is the first rows and columns of a weight, as attention reads it."""
    if weight.dim() < 2 or weight.shape[:-2].numel() not in (1, mask.shape[0]):
        return False
    part = weight.reshape(-1, *weight.shape[-2:])[:, : mask.shape[1], : mask.shape[2]]
    if part.shape != mask.shape:
        return False
    return torch.equal(mask, _added(part if kind == ADDED else (part != 0) == (kind == SHOWN)))


def _begins(weight: Tensor, part: Tensor) -> bool:
    """Whether `part` is the first rows, columns and so on of a weight, but for sizes of 1."""
    whole, part = weight.squeeze(), part.squeeze()
    if whole.dim() != part.dim() or whole.dtype != part.dtype:
        return False
    return torch.equal(whole[tuple(slice(size) for size in part.shape)], part)
