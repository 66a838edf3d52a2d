"""Batch norms with fewer numbers: as part of the convolutions before them, or as two vectors.

In evaluation a batch norm multiplies each channel and adds to it, and a convolution can do both by
its own weights and bias. A file then holds one number a channel in the place of four, and weights
that were zero stay zero. Where weights are to share few values, the norms are better kept: they
make up for channels of different sizes, and two of their four vectors can be constant.
"""

from __future__ import annotations

import math
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
from asterism.weights.copies import copied
from asterism.weights.metrics import evaluating


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
    folded = copied(model).eval()
    for layer, norm in _pairs(folded, example_inputs):
        _fold(folded, layer, norm)
    return folded


@torch.no_grad()
def even_channels_(model: nn.Module, example_inputs: Tensor | Sequence[Tensor]) -> None:
    """Gives all channels of a convolution before a batch norm the same mean square of non-zeros.

    The norm's running averages follow, so the outputs stay as they are, up to rounding. One
    codebook then suits all channels.

    model           in place
    example_inputs  what it is called with, of any batch size
    """
    for layer, norm in _pairs(model, example_inputs):
        first, second = model.get_submodule(layer), model.get_submodule(norm)
        if not isinstance(first, _ConvNd) or first.transposed or is_parametrized(first):
            continue
        if not isinstance(second, _BatchNorm) or second.running_var is None:
            continue
        squares, counts = first.weight.square().flatten(1).sum(1), first.weight.flatten(1) != 0
        mean = squares / counts.sum(1).clamp(min=1)
        by = torch.where(mean > 0, squares.sum() / counts.sum() / mean, 1.0).sqrt()
        first.weight *= by.view(-1, *[1] * (first.weight.dim() - 1))
        if first.bias is not None:
            first.bias *= by
        assert second.running_mean is not None
        second.running_mean *= by
        second.running_var *= by.square()


@torch.no_grad()
def standardise_norms_(model: nn.Module) -> None:
    """Puts what batch norms know into their weight and bias: mean 0, variance 1.

    The outputs in evaluation stay as they are, up to rounding. Constant vectors cost a small file
    next to nothing.
    """
    for norm in model.modules():
        if not isinstance(norm, _BatchNorm) or norm.running_var is None or not norm.affine:
            continue
        assert norm.running_mean is not None
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        norm.bias.sub_(norm.running_mean * scale)
        norm.weight.copy_(scale * math.sqrt(1 + norm.eps))
        norm.running_mean.zero_()
        norm.running_var.fill_(1)


def _pairs(model: nn.Module, inputs: Tensor | Sequence[Tensor]) -> list[tuple[str, str]]:
    """The names of each two modules of which the second alone reads the first, both used once."""
    with evaluating(model):
        graph = capture(model, inputs)
    names = list(model.state_dict())
    readers = Counter([*(value for node in graph.nodes for value in node.inputs), *graph.outputs])
    owners = {value: _owner(node, names) for value, node in enumerate(graph.nodes, 1)}
    uses = Counter(owners.values())
    pairs = []
    for norm, node in zip(owners.values(), graph.nodes, strict=True):
        before = node.inputs[0] if node.inputs else 0
        layer = owners.get(before)
        if norm and layer and readers[before] == uses[norm] == uses[layer] == 1:
            pairs.append((layer, norm))
    return pairs


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
