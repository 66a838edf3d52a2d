"""Which layers make the units that other layers read.

A space is a set of units (channels, features) that flow through a network side by side. Owns the
walk over a traced model that finds for each layer the spaces at its two ends, and the value that
each unit has if nothing but biases reaches it. Where an operation mixes units in a way not known
here, the spaces at its ends are fixed: nothing may be taken out of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.pooling import _AvgPoolNd, _MaxPoolNd

from asterism.errors import InputError

# Each unit for itself, and a constant stays one: f(c) = f([c, c, …]).
CHANNELWISE_MODULES: tuple[type[nn.Module], ...] = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Softplus),
    *(nn.Tanh, nn.Sigmoid, nn.Identity),
)
CHANNELWISE_FUNCTIONS: set[Any] = {
    *(F.relu, F.relu6, F.leaky_relu, F.elu, F.gelu, F.silu, F.hardswish, F.softplus),
    *(torch.relu, torch.tanh, torch.sigmoid, F.tanh, F.sigmoid),
}
# They leave a constant as it is.
POOLS: tuple[type[nn.Module], ...] = (_MaxPoolNd, _AvgPoolNd, nn.AdaptiveAvgPool2d, nn.Dropout)
POOL_FUNCTIONS: set[Any] = {
    *(F.max_pool1d, F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, F.dropout)
}
ADD: set[Any] = {operator.add, operator.iadd, torch.add}


@dataclass(eq=False)
class Space:
    """Units that live and die together in every layer that makes or reads them."""

    size: int
    fixed: bool = False
    joined: Space | None = None
    last: bool = False  # whether units are along the last dimension, which may not be the second

    def root(self) -> Space:
        return self if self.joined is None else self.joined.root()

    def join(self, other: Space) -> None:
        """Two spaces whose units are added to each other are one."""
        one, two = self.root(), other.root()
        if one is two:
            return
        if one.size != two.size:
            one.fixed = two.fixed = True
            return
        one.fixed |= two.fixed
        one.last |= two.last
        two.joined = one


@dataclass(frozen=True)
class Value:
    """What flows between two nodes: its units, and their constants where these are known."""

    space: Space
    constant: Callable[[], Tensor | None]


@dataclass(eq=False)
class LayerEnds:
    """A layer with weights, what it reads and what it makes."""

    module: nn.Linear | _ConvNd
    reads: Value
    makes: Space


@dataclass
class Flow:
    """All layers of a model in the order of their use."""

    layers: dict[str, LayerEnds] = field(default_factory=dict)
    norms: dict[str, tuple[_BatchNorm, Space]] = field(default_factory=dict)


def trace(model: nn.Module) -> Flow:
    """The flow of units through the model; an error where it cannot be traced."""
    try:
        graph = fx.symbolic_trace(model).graph
    except Exception as error:  # a forward pass may raise anything when it is traced
        raise InputError(f"{type(model).__name__} cannot be traced: {error}") from error
    return _Walk(model).walk(graph)


class _Walk:
    def __init__(self, model: nn.Module) -> None:
        self.modules = dict(model.named_modules())
        self.flow = Flow()
        self.values: dict[fx.Node, Value] = {}
        self.shared = _shared_modules(model)

    def walk(self, graph: fx.Graph) -> Flow:
        for node in graph.nodes:
            inputs = [self.values[each] for each in node.all_input_nodes]
            self.values[node] = self._visit(node, inputs)
        return self.flow

    def _visit(self, node: fx.Node, inputs: list[Value]) -> Value:
        if node.op == "call_module" and len(inputs) == 1:
            return self._module(str(node.target), self.modules[str(node.target)], inputs[0])
        called = node.target
        if node.op in ("call_function", "call_method") and len(inputs) == 1:
            if called in POOL_FUNCTIONS - {F.dropout} and inputs[0].space.root().last:
                return self._unknown(inputs)
            if _is_flatten(node) or called in POOL_FUNCTIONS:
                return inputs[0] if not _pads_with_zeros(node) else _unfolded(inputs[0])
            if called in CHANNELWISE_FUNCTIONS or called in ("relu", "tanh", "sigmoid"):
                return _mapped(inputs[0], _function_of(node))
        if called in ADD and len(inputs) == 2:
            inputs[0].space.join(inputs[1].space)
            return _summed(*inputs)
        return self._unknown(inputs)

    def _module(self, name: str, module: nn.Module, value: Value) -> Value:
        if isinstance(module, nn.Linear | _ConvNd) and self._is_plain(name, module):
            return self._layer(name, module, value)
        if isinstance(module, _BatchNorm) and self._fits(name, module, value.space):
            self.flow.norms[name] = (module, value.space)
            return _mapped(value, lambda constant: _normalised(module, constant))
        if isinstance(module, POOLS):
            if value.space.root().last and not isinstance(module, nn.Dropout):
                return self._unknown([value])
            return _unfolded(value) if _pads_average(module) else value
        if isinstance(module, CHANNELWISE_MODULES):
            return _mapped(value, module)
        if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1):
            return value
        return self._unknown([value])

    def _layer(self, name: str, module: nn.Linear | _ConvNd, value: Value) -> Value:
        outputs, inputs = module.weight.shape[:2]
        # In a row of several tokens a unit's numbers are not side by side, as a channel's are.
        tokens = value.space.root().last and inputs != value.space.size
        if inputs % value.space.size or tokens:
            value.space.root().fixed = True
        before = self.flow.layers.get(name)
        linear = isinstance(module, nn.Linear)
        makes = Space(outputs, last=linear) if before is None else before.makes
        if before is not None:  # called once more: both calls read the same units
            before.reads.space.join(value.space)
            value = Value(value.space, lambda: None)
        self.flow.layers[name] = LayerEnds(module, value, makes)
        return Value(makes, lambda: _bias(module))

    def _is_plain(self, name: str, module: nn.Linear | _ConvNd) -> bool:
        grouped = isinstance(module, _ConvNd) and (module.groups > 1 or module.transposed)
        return not grouped and name not in self.shared

    def _fits(self, name: str, norm: _BatchNorm, space: Space) -> bool:
        """One statistic for each unit of a space that is known."""
        known = norm.running_mean is not None and norm.num_features == space.size
        return known and name not in self.shared

    def _unknown(self, inputs: list[Value]) -> Value:
        for value in inputs:
            value.space.root().fixed = True
        return Value(Space(1, fixed=True), lambda: None)


def _shared_modules(model: nn.Module) -> set[str]:
    """Modules with a parameter that another one holds too."""
    holders: dict[nn.Parameter, list[str]] = {}
    for name, module in model.named_modules():
        for param in module.parameters(recurse=False):
            holders.setdefault(param, []).append(name)
    return {name for names in holders.values() if len(names) > 1 for name in names}


def _bias(module: nn.Linear | _ConvNd) -> Tensor:
    if module.bias is None:
        return module.weight.new_zeros(len(module.weight))
    return module.bias.detach()


def _mapped(value: Value, function: Callable[[Tensor], Tensor]) -> Value:
    def constant() -> Tensor | None:
        before = value.constant()
        return None if before is None else function(before)

    return Value(value.space, constant)


def _summed(one: Value, other: Value) -> Value:
    def constant() -> Tensor | None:
        first, second = one.constant(), other.constant()
        return None if first is None or second is None else first + second

    return Value(one.space, constant)


def _unfolded(value: Value) -> Value:
    return Value(value.space, lambda: None)


def _normalised(module: _BatchNorm, constant: Tensor) -> Tensor:
    """A constant after batch normalisation by the running statistics."""
    return F.batch_norm(
        constant[None],
        module.running_mean,
        module.running_var,
        module.weight,
        module.bias,
        training=False,
        eps=module.eps,
    )[0].detach()


def _is_flatten(node: fx.Node) -> bool:
    arguments = (*node.args[1:], *node.kwargs.values())
    return node.target in ("flatten", torch.flatten) and arguments in ((1,), (1, -1))


def _function_of(node: fx.Node) -> Callable[[Tensor], Tensor]:
    function = getattr(torch, node.target) if isinstance(node.target, str) else node.target
    return lambda constant: function(constant, *node.args[1:], **node.kwargs)


def _pads_with_zeros(node: fx.Node) -> bool:
    return node.target is F.avg_pool2d and (len(node.args) > 3 or "padding" in node.kwargs)


def _pads_average(module: nn.Module) -> bool:
    return isinstance(module, _AvgPoolNd) and bool(torch.tensor(module.padding).any())
