"""From a graph to calls: each layer by its kernels, convolutions in a row as one.

Owns which networks can be trained through their non-zeros.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from asterism.graph.live.blocks import Kernels
from asterism.graph.live.chain import Around, Chain, Unit, convolve
from asterism.graph.live.convolution import Geometry
from asterism.graph.live.plain import PLAIN, NotLiveError, Run
from asterism.graph.live.pooling import halve
from asterism.graph.network import Graph, Node
from asterism.graph.operations.pooling import halves
from asterism.graph.shapes import infer

MOST_OF_A_MATRIX = 0.1  # with more of its weights, torch is faster
TINY = 1e-30  # in the place of a zero that may learn: it changes no sum, and gets a gradient


class LiveStep(NamedTuple):
    """One call: what it makes of which values."""

    value: int
    inputs: tuple[int, ...]
    run: Run


@dataclass
class LivePlan:
    """The calls that a graph is; NotLiveError if it has others."""

    graph: Graph
    model: nn.Module
    kernels: Kernels
    may_learn: Mapping[str, Tensor] | None = None  # masks by parameter name; None for no zero

    def steps(self) -> list[LiveStep]:
        chains = self._chains()
        inside = {value for chain in chains.values() for value in chain.inside}
        steps = []
        for value, node in enumerate(self.graph.nodes, 1):
            if value in chains:
                steps.append(self._step(value, chains[value]))
            elif value not in inside:
                steps.append(LiveStep(value, node.inputs, self._run(node)))
        return _needed(steps, self.graph.outputs)

    def _chains(self) -> dict[int, _Chain]:
        """Convolutions and batch norms by the value that they end in, with all that is inside.

        A batch norm takes the addition and the ReLU that follow it, and the convolution before it.
        What is added comes last: nothing follows it in a chain.
        """
        readers = Counter(value for node in self.graph.nodes for value in node.inputs)
        readers.update(self.graph.outputs)
        found: dict[int, _Chain] = {}
        for value, node in enumerate(self.graph.nodes, 1):
            for before in node.inputs:
                if before in found and readers[before] == 1:
                    longer = found[before].then(node, before, self._unit)
                    if longer is not None:
                        del found[before]
                        found[value] = longer
                        break
            else:
                if node.op in ("conv", "batch_norm"):
                    found[value] = _Chain((self._unit(node),), node.inputs)
        return found

    def _step(self, value: int, chain: _Chain) -> LiveStep:
        around = self._around(chain) if len(chain.inputs) == 2 else None
        inputs = chain.inputs if around is None else chain.inputs[:1]

        def run(images: int, *values: Tensor) -> Tensor:
            units = tuple(
                unit if unit.weight is None else replace(unit, weight=self._awake(unit.weight))
                for unit in chain.units
            )
            return Chain(units, self.kernels, around)(images, *values)

        return LiveStep(value, inputs, run)

    def _awake(self, weight: Tensor) -> Tensor:
        """What the kernels are given: the weight, with no zero where it may learn."""
        if self.may_learn is None:
            return weight
        zero, kept = weight == 0, self.may_learn.get(self.names[weight])
        return weight + TINY * (zero if kept is None else zero & kept)

    @cached_property
    def names(self) -> dict[Tensor, str]:
        """The name of each parameter; of one that has several, the first."""
        return {param: name for name, param in self.model.named_parameters()}

    def _around(self, chain: _Chain) -> Around | None:
        """How the chain's own input is added, if that is what is added."""
        start, value = chain.inputs
        around, steps = Around(), {2: 1, 3: 1}
        while value != start:
            node = self.graph.nodes[value - 1] if value else None
            if node is None or len(node.inputs) != 1:
                return None
            (before,) = node.inputs
            if node.op == "slice" and self._takes_every(node, self.shapes[before]):
                steps[node["dim"]] *= node["step"]
            elif node.op == "pad" and (node["dim"], node["mode"], node.number("value")) == (
                1,
                0,
                0,
            ):
                around = replace(
                    around,
                    before=around.before + node["before"],
                    after=around.after + node["after"],
                )
            else:
                return None
            value = before
        alike = steps[2] == steps[3] and chain.units[0].weight is not None
        return replace(around, step=steps[2]) if alike else None

    def _takes_every(self, node: Node, shape: tuple[int, ...]) -> bool:
        """Whether a slice takes every step-th row or column, from the first to the end."""
        if node["dim"] not in (2, 3) or node["start"]:
            return False
        return node["size"] == -(-shape[node["dim"] - 1] // node["step"])

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of all values, for one example."""
        weights = [tensor.detach().numpy() for tensor in self.model.state_dict().values()]
        return infer(self.graph, weights)

    def _unit(self, node: Node) -> Unit:
        if node.op == "batch_norm":
            return Unit(norm=self._norm_module(node))
        weight, bias = self._parameters(node)
        if weight.dim() != 4:
            raise NotLiveError("only convolutions over two dimensions can be trained live")
        geometry = Geometry(
            node.pair("stride"), node.pair("padding"), node.pair("dilation"), node["groups"]
        )
        return Unit(weight, bias, geometry)

    def _norm_module(self, node: Node) -> _BatchNorm:
        names = list(self.model.state_dict())
        place = node.weights[2]
        owner = names[place].rpartition(".")[0] if place is not None and place >= 0 else None
        module = None if owner is None else self.model.get_submodule(owner)
        if not isinstance(module, _BatchNorm):
            raise NotLiveError("only batch norms that are modules of torch can be trained live")
        for each in (module.weight, module.bias, module.running_mean, module.running_var):
            if each is not None:
                _check_type(each)
                if not each.is_contiguous():
                    raise NotLiveError("a live batch norm must lie in one piece of memory")
        return module

    def _run(self, node: Node) -> Run:
        if node.op == "linear":
            weight, bias = self._parameters(node)
            return lambda _, value: _linear(value, self._awake(weight), bias, self.kernels)
        if halves(node):
            return self._halving
        make = PLAIN.get(node.op)
        if make is None:
            raise NotLiveError(f"{node.op} cannot be trained through the non-zeros alone")
        return make(node)

    def _parameters(self, node: Node) -> tuple[nn.Parameter, nn.Parameter | None]:
        params = dict(self.model.named_parameters(remove_duplicate=False))
        names = list(self.model.state_dict())
        found = [None if place is None else params.get(names[place]) for place in node.weights]
        known = [param for param in found if param is not None]
        if node.made_weights or not known or len(known) < len(found):
            raise NotLiveError("only weights that are parameters of the model can be trained live")
        for param in known:
            _check_type(param)
        return known[0], known[1] if len(known) > 1 else None

    def _halving(self, _: int, value: Tensor) -> Tensor:
        height, width = value.shape[2:4]
        if height % 2 or width % 2:
            raise NotLiveError(f"2×2 max-pooling of {height}×{width} values leaves some out")
        return halve(value, self.kernels)


@dataclass(frozen=True)
class _Chain:
    """Units that follow each other: what they read, and the values inside."""

    units: tuple[Unit, ...]
    inputs: tuple[int, ...]  # the first unit's, and what is added at the end
    inside: tuple[int, ...] = ()

    def then(self, node: Node, before: int, unit: Callable[[Node], Unit]) -> _Chain | None:
        """With a node that reads what it ends in, if that can be part of it."""
        last, inside = self.units[-1], (*self.inside, before)
        if node.op == "batch_norm" and last.norm is None:
            units = (*self.units[:-1], replace(last, norm=unit(node).norm))
            return replace(self, units=units, inside=inside)
        if last.norm is None:
            return None
        if node.op == "relu" and not last.relu:
            return replace(self, units=(*self.units[:-1], replace(last, relu=True)), inside=inside)
        if len(self.inputs) > 1:
            return None
        if node.op == "conv":
            return replace(self, units=(*self.units, unit(node)), inside=inside)
        if node.op == "add" and not last.relu:
            first, second = node.inputs
            added = second if first == before else first
            return replace(self, inputs=(*self.inputs, added), inside=inside)
        return None


def _needed(steps: Sequence[LiveStep], outputs: Sequence[int]) -> list[LiveStep]:
    """The steps whose values are read."""
    read, kept = set(outputs), []
    for step in reversed(steps):
        if step.value in read:
            read.update(step.inputs)
            kept.append(step)
    return kept[::-1]


def _check_type(tensor: Tensor) -> None:
    if tensor.dtype != torch.float32 or tensor.device.type != "cpu":
        raise NotLiveError("only parameters of type float32 on the CPU can be trained live")


def _linear(value: Tensor, weight: Tensor, bias: Tensor | None, kernels: Kernels) -> Tensor:
    """A convolution of 1×1 over one row: the blocks, side by side, in as many parts as threads."""
    if value.dim() != 3:
        raise NotLiveError("a linear layer over sequences cannot be trained live")
    if weight.count_nonzero() > MOST_OF_A_MATRIX * weight.numel():
        alive = weight * (weight != 0)  # zeros get no gradient
        return F.linear(value.transpose(1, 2), alive, bias).transpose(1, 2)
    blocks, channels, lanes = value.shape
    parts = torch.get_num_threads()
    parts = parts if blocks % parts == 0 else 1
    rows = value.view(parts, -1, channels, lanes).transpose(1, 2).unsqueeze(2)
    made = convolve(rows, weight[:, :, None, None], bias, Geometry(), kernels)
    return made.squeeze(2).transpose(1, 2).reshape(blocks, -1, lanes)
