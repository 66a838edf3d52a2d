"""From a graph to calls: each layer by its kernels, a batch norm with what follows it as one.

Owns which networks can be trained through their non-zeros.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from asterism.graph.live.layers import Geometry, Kernels, Normalised, convolve, halve
from asterism.graph.live.plain import PLAIN, NotLiveError, Run
from asterism.graph.network import Graph, Node
from asterism.graph.operations.pooling import halves

MOST_OF_A_MATRIX = 0.1  # with more of its weights, torch is faster


TINY = 1e-30  # in the place of a zero that may learn: it changes no sum, and gets a gradient


class Step(NamedTuple):
    """One call: what it makes of which values."""

    value: int
    inputs: tuple[int, ...]
    run: Run


@dataclass
class Plan:
    """The calls that a graph is; NotLiveError if it has others."""

    graph: Graph
    model: nn.Module
    kernels: Kernels
    may_learn: Mapping[str, Tensor] | None = None  # masks by parameter name; None for no zero

    def steps(self) -> list[Step]:
        norms = self._norms()
        inside = {value for norm in norms.values() for value in norm.inside}
        steps = []
        for value, node in enumerate(self.graph.nodes, 1):
            if value in norms:
                steps.append(self._normalised(value, norms[value]))
            elif value not in inside:
                steps.append(Step(value, node.inputs, self._run(node)))
        return steps

    def _norms(self) -> dict[int, _Norm]:
        """Each batch norm by the value that it ends in: an addition and a ReLU may follow it."""
        readers = Counter(value for node in self.graph.nodes for value in node.inputs)
        readers.update(self.graph.outputs)
        found: dict[int, _Norm] = {}
        for value, node in enumerate(self.graph.nodes, 1):
            if node.op == "batch_norm":
                found[value] = _Norm(node, node.inputs)
            elif node.op in ("add", "relu"):
                for before in node.inputs:
                    if before in found and readers[before] == 1 and not found[before].relu:
                        longer = found[before].then(node, before)
                        if longer is not None:
                            del found[before]
                            found[value] = longer
                            break
        return found

    def _normalised(self, value: int, norm: _Norm) -> Step:
        module = self._norm_module(norm.node)

        def run(images: int, given: Tensor, other: Tensor | None = None) -> Tensor:
            return Normalised(module, norm.relu, images, self.kernels)(given, other)

        return Step(value, norm.inputs, run)

    def _norm_module(self, node: Node) -> _BatchNorm:
        names = list(self.model.state_dict())
        place = node.weights[2]
        owner = names[place].rpartition(".")[0] if place is not None and place >= 0 else None
        module = None if owner is None else self.model.get_submodule(owner)
        if not isinstance(module, _BatchNorm):
            raise NotLiveError("only batch norms that are modules of torch can be trained live")
        for each in (module.weight, module.running_mean):
            if each is not None:
                _check_type(each)
        return module

    def _run(self, node: Node) -> Run:
        if node.op in ("conv", "linear"):
            return self._weighted(node)
        if halves(node):
            return self._halving
        make = PLAIN.get(node.op)
        if make is None:
            raise NotLiveError(f"{node.op} cannot be trained through the non-zeros alone")
        return make(node)

    def _weighted(self, node: Node) -> Run:
        weight, bias = self._parameters(node)
        now = self._learning(node, weight)
        if node.op == "linear":
            return lambda _, value: _linear(value, now(), bias, self.kernels)
        if weight.dim() != 4:
            raise NotLiveError("only convolutions over two dimensions can be trained live")
        geometry = Geometry(
            node.pair("stride"), node.pair("padding"), node.pair("dilation"), node["groups"]
        )
        return lambda _, value: convolve(value, now(), bias, geometry, self.kernels)

    def _learning(self, node: Node, weight: nn.Parameter) -> Callable[[], Tensor]:
        """What the kernels are given: the weight, with no zero where it may learn."""
        assert node.weights[0] is not None
        name = list(self.model.state_dict())[node.weights[0]]

        def now() -> Tensor:
            if self.may_learn is None:
                return weight
            zero, kept = weight == 0, self.may_learn.get(name)
            return weight + TINY * (zero if kept is None else zero & kept)

        return now

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
class _Norm:
    """A batch norm with what follows it."""

    node: Node
    inputs: tuple[int, ...]
    relu: bool = False
    inside: tuple[int, ...] = ()

    def then(self, node: Node, before: int) -> _Norm | None:
        inside = (*self.inside, before)
        if node.op == "relu":
            return _Norm(self.node, self.inputs, True, inside)
        if len(self.inputs) > 1:
            return None
        first, second = node.inputs
        return _Norm(self.node, (*self.inputs, second if first == before else first), False, inside)


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
