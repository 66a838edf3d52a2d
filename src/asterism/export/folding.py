"""Batch norms as part of the convolutions before them: a quarter of their numbers, one function.

In evaluation a batch norm multiplies each channel and adds to it, and a convolution can do both by
its own weights and bias. A file then holds one number a channel in the place of four, and weights
that were zero stay zero.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from asterism.graph.capture import capture
from asterism.graph.network import Node


@torch.no_grad()
def fold_norms(model: nn.Module, example_inputs: Tensor | Sequence[Tensor]) -> nn.Module:
    """A copy in evaluation mode, each batch norm part of the convolution or linear layer before it.

    It gives the same outputs, up to rounding. A batch norm stays where something else reads the
    convolution as well, where another kind of layer comes before it, or where either is used twice.

    model           stays as it is; networks that `save` cannot capture are an InputError
    example_inputs  what it is called with, of any batch size

    >>> small = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2))
    >>> [name for name, _ in fold_norms(small, torch.zeros(1, 1, 5, 5)).named_parameters()]
    ['0.weight', '0.bias']
    """
    folded = copy.deepcopy(model).eval()
    graph = capture(folded, example_inputs)
    names = list(folded.state_dict())
    readers = Counter([*(value for node in graph.nodes for value in node.inputs), *graph.outputs])
    owners = {value: _owner(node, names) for value, node in enumerate(graph.nodes, 1)}
    uses = Counter(owners.values())
    for value, norm in owners.items():
        before = graph.nodes[value - 1].inputs[0]
        layer = owners.get(before)
        if norm is None or layer is None or readers[before] > 1 or uses[norm] + uses[layer] > 2:
            continue
        _fold(folded, layer, norm)
    return folded


def _owner(node: Node, names: list[str]) -> str | None:
    """The module whose weights a layer has; None if it has none."""
    places = [place for place in node.weights if place is not None and 0 <= place < len(names)]
    return names[places[0]].rpartition(".")[0] if places else None


def _fold(model: nn.Module, layer: str, norm: str) -> None:
    """Puts both modules' work into the first, if they are of the kinds that can be."""
    first, second = model.get_submodule(layer), model.get_submodule(norm)
    if not isinstance(second, _BatchNorm) or second.running_mean is None:
        return
    if isinstance(first, _ConvNd):
        model.set_submodule(layer, fuse_conv_bn_eval(first, second, first.transposed))
    elif isinstance(first, nn.Linear):
        model.set_submodule(layer, fuse_linear_bn_eval(first, second))
    else:
        return
    model.set_submodule(norm, nn.Identity())
