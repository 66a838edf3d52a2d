"""Takes dead units out of a network, exactly, and puts them back.

A unit that no layer reads is dead. A unit that nothing but its bias reaches has one value for all
inputs: it is folded into the biases of the layers that read it, and then it is dead too. What is
left is a smaller network of the same class that gives the same outputs: sparse retraining costs
what the sparse network costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from asterism.graph.unit_flow import Flow, LayerEnds, Space, trace
from asterism.weights.copies import copied


@dataclass(frozen=True)
class Compacted:
    """A network without its dead units.

    model   the smaller network
    kept    by the name of each tensor of its state_dict that lost units: the indices kept, for
            its first and second dimension
    shapes  the shapes that those tensors had
    """

    model: nn.Module
    kept: Mapping[str, tuple[Tensor, Tensor | None]]
    shapes: Mapping[str, torch.Size]

    def expand(self) -> dict[str, Tensor]:
        """A state_dict for the network as it was: the same function, dead units zero."""
        state = {}
        for name, tensor in self.model.state_dict().items():
            if name not in self.kept:
                state[name] = tensor.detach().clone()
                continue
            whole = tensor.new_zeros(self.shapes[name])
            if name.endswith("running_var"):
                whole += 1  # of a unit that is always zero
            whole[_grid(*self.kept[name])] = tensor.detach()
            state[name] = whole
        return state


@torch.no_grad()
def compact(model: nn.Module, *, in_order: bool = False) -> Compacted:
    """A smaller network with the same outputs, up to rounding; `model` stays as it is.

        small = compact(model)
        train(small.model)
        model.load_state_dict(small.expand())

    Exact in evaluation mode. Spaces that meet an operation unknown here stay whole.

    model     the network
    in_order  units change places: sorted by the first weights that lead into them, a file tells
              their positions in fewer bits
    """
    smaller = copied(model)
    flow = trace(smaller)
    while _fold_constants(flow) + _silence_unread(flow):
        pass
    alive = {space: _alive(flow, space) for space in _spaces(flow)}
    if in_order:
        _sort_units(flow, alive)
    shapes = {name: tensor.shape for name, tensor in smaller.state_dict().items()}
    kept: dict[str, tuple[Tensor, Tensor | None]] = {}
    for name, ends in flow.layers.items():
        rows, columns = alive[ends.makes.root()], _columns(ends, alive)
        _slice(ends.module, rows, columns)
        kept[f"{name}.weight"] = (rows, columns)
        if ends.module.bias is not None:
            kept[f"{name}.bias"] = (rows, None)
    for name, (norm, space) in flow.norms.items():
        for key, tensor in norm.state_dict().items():
            if tensor.dim() == 1:
                kept[f"{name}.{key}"] = (alive[space.root()], None)
        _slice_norm(norm, alive[space.root()])
    return Compacted(smaller, kept, shapes)


# ---------------------------------------------------------------------- at full size


def _fold_constants(flow: Flow) -> bool:
    """Moves units with one value for all inputs into the biases of those who read them."""
    changed = False
    for ends in flow.layers.values():
        constant = ends.reads.constant()
        if constant is None or ends.reads.space.root().fixed:
            continue
        by_unit = _by_unit(ends)
        silent = _silent(flow, ends.reads.space) & (by_unit.flatten(2) != 0).any(2).any(0)
        if _pads(ends.module):
            silent &= constant == 0
        if ends.module.bias is None:
            silent &= constant == 0
        else:
            ends.module.bias += by_unit.flatten(2)[:, silent].sum(2) @ constant[silent]
        by_unit[:, silent] = 0
        changed |= bool(silent.any())
    return changed


def _silence_unread(flow: Flow) -> bool:
    """Zeroes the weights of those who make units that nobody reads."""
    changed = False
    for ends in flow.layers.values():
        dead = ~_read(flow, ends.makes)
        changed |= bool((ends.module.weight[dead] != 0).any())
        ends.module.weight[dead] = 0
        if ends.module.bias is not None:
            ends.module.bias[dead] = 0
    return changed


def _silent(flow: Flow, space: Space) -> Tensor:
    """Units that no weight feeds, in any of the layers that make them."""
    makers = [ends.module.weight for ends in flow.layers.values() if _same(ends.makes, space)]
    return torch.stack([(weight.flatten(1) == 0).all(1) for weight in makers]).all(0)


def _read(flow: Flow, space: Space) -> Tensor:
    """Units that some weight reads; all of them where the space is fixed or leaves the model."""
    readers = [_by_unit(ends) for ends in flow.layers.values() if _same(ends.reads.space, space)]
    if space.root().fixed or not readers:
        return torch.ones(space.size, dtype=torch.bool)
    return torch.stack([(weight.flatten(2) != 0).any(2).any(0) for weight in readers]).any(0)


def _by_unit(ends: LayerEnds) -> Tensor:
    """The weight as (outputs, units read, weights per unit), sharing its memory."""
    weight, units = ends.module.weight, ends.reads.space.size
    if weight.shape[1] % units:
        units = weight.shape[1]
    return weight.view(weight.shape[0], units, weight.shape[1] // units, *weight.shape[2:])


# ---------------------------------------------------------------------- slicing


def _spaces(flow: Flow) -> set[Space]:
    layers = flow.layers.values()
    found = {ends.makes.root() for ends in layers} | {ends.reads.space.root() for ends in layers}
    return found | {space.root() for _, space in flow.norms.values()}


def _alive(flow: Flow, space: Space) -> Tensor:
    """Indices of the units that stay; at least one does."""
    found = _read(flow, space).nonzero().squeeze(1)
    return found if len(found) else torch.zeros(1, dtype=torch.long)


def _sort_units(flow: Flow, alive: dict[Space, Tensor]) -> None:
    """Those that only this model's layers see, layer after layer, by the weights into each."""
    read = {ends.reads.space.root() for ends in flow.layers.values()}
    sorted_before: set[Space] = set()
    for ends in flow.layers.values():
        space = ends.makes.root()
        if space.fixed or space not in read or space in sorted_before:
            continue
        sorted_before.add(space)
        mask = ends.module.weight[alive[space]][:, _columns(ends, alive)].flatten(1) != 0
        order = sorted(range(len(mask)), key=lambda row: mask[row].nonzero().flatten().tolist())
        alive[space] = alive[space][order]


def _columns(ends: LayerEnds, alive: Mapping[Space, Tensor]) -> Tensor:
    """The input columns of a layer that belong to living units."""
    units, columns = alive[ends.reads.space.root()], ends.module.weight.shape[1]
    if columns % ends.reads.space.size:
        return torch.arange(columns)
    each = columns // ends.reads.space.size
    return (units[:, None] * each + torch.arange(each)).flatten()


def _slice(module: nn.Linear | _ConvNd, rows: Tensor, columns: Tensor) -> None:
    weight = module.weight[rows][:, columns]
    if weight.dim() == 4 and module.weight.is_contiguous(memory_format=torch.channels_last):
        weight = weight.contiguous(memory_format=torch.channels_last)
    module.weight = nn.Parameter(weight)
    if module.bias is not None:
        module.bias = nn.Parameter(module.bias[rows])
    if isinstance(module, nn.Linear):
        module.in_features, module.out_features = len(columns), len(rows)
    else:
        module.in_channels, module.out_channels = len(columns), len(rows)


def _slice_norm(norm: _BatchNorm, units: Tensor) -> None:
    for key, param in norm.named_parameters():
        setattr(norm, key, nn.Parameter(param[units]))
    for key, buffer in norm.named_buffers():
        if buffer.dim() == 1:
            setattr(norm, key, buffer[units])
    norm.num_features = len(units)


def _grid(rows: Tensor, columns: Tensor | None) -> tuple[Tensor, ...]:
    return (rows,) if columns is None else (rows[:, None], columns[None])


def _same(one: Space, other: Space) -> bool:
    return one.root() is other.root()


def _pads(module: nn.Module) -> bool:
    return isinstance(module, _ConvNd) and (
        module.padding == "same" or any(side != 0 for side in module.padding)
    )
