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
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.nn.utils.parametrize import is_parametrized

from asterism.graph.capture import capture
from asterism.graph.network import Node


@torch.no_grad()
def fold_norms(model: nn.Module, example_inputs: Tensor | Sequence[Tensor]) -> nn.Module:
    """A copy in evaluation mode, each batch norm part of the convolution before it.

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
    for norm, node in zip(owners.values(), graph.nodes, strict=True):
        before = node.inputs[0] if node.inputs else 0
        layer = owners.get(before)
        if norm and layer and readers[before] == uses[norm] == uses[layer] == 1:
            _fold(folded, layer, norm)
    return folded


def _owner(node: Node, names: list[str]) -> str | None:
    """The module whose weights a layer has; None if it has none."""
    places = [place for place in node.weights if place is not None and 0 <= place < len(names)]
    return names[places[0]].rpartition(".")[0] if places else None


def _fold(model: nn.Module, layer: str, norm: str) -> None:
    """Puts both modules' work into the first, if they are of the kinds that can be.

    model  that has them
    layer  the first one's name
    norm   the second one's
    """
    first, second = model.get_submodule(layer), model.get_submodule(norm)
    if not isinstance(first, _ConvNd) or is_parametrized(first):
        return
    if not isinstance(second, _BatchNorm) or second.running_mean is None:
        return
    if first.transposed and first.groups > 1:  # torch's function is not for these
        return
    model.set_submodule(layer, fuse_conv_bn_eval(first, second, first.transposed))
    model.set_submodule(norm, nn.Identity())
