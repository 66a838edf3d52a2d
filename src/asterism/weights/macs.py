"""Multiply-accumulates per weight tensor, counted while the model runs one batch.

Owns the hooks and the counting; nothing is traced, and the model is left as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from asterism.errors import InputError
from asterism.weights.metrics import evaluating

Counts = dict[nn.Parameter, int]


@torch.no_grad()
def macs(model: nn.Module, example_inputs: Any) -> Counts:
    """The multiply-accumulates of one example, by parameter; for others they are not known.

    model           is run once, in eval mode
    example_inputs  what it is called with: a tensor, a tuple, or a mapping of keywords. The first
                    dimension of the first tensor is the batch

    A weight is used once for every position of its layer's output (or input, if the layer is
    transposed), and once a step where it is recurrent. A module that is called twice counts twice,
    a tied weight wherever it is used.
    """
    args, keywords = _call(example_inputs)
    counts: Counts = {}

    def count(module: nn.Module, inputs: Any, output: Any) -> None:
        for name, uses in _uses(module, inputs, output).items():
            param = module.get_parameter(name)
            counts[param] = counts.get(param, 0) + uses

    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        for module in model.modules():
            hook = module.register_forward_hook(partial(_with_keywords, count), with_kwargs=True)
            stack.enter_context(hook)
        model(*args, **keywords)
    batch = _batch([*args, *keywords.values()])
    return {param: number // batch for param, number in counts.items()}


def _uses(module: nn.Module, inputs: list[Any], output: Any) -> Mapping[str, int]:
    """The multiply-accumulates of one call of a module, by the name of its parameter."""
    if isinstance(module, nn.MultiheadAttention):
        return _attention_uses(module, *(_positions(each) for each in inputs[:3]))
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):
        times = _positions(inputs[0])
    elif getattr(module, "transposed", False):
        times = inputs[0].numel() // module.get_parameter("weight").shape[0]
    elif isinstance(module, nn.Linear | nn.Bilinear):
        times = _positions(output)
    elif isinstance(module, nn.modules.conv._ConvNd):
        times = output.numel() // module.out_channels
    else:
        return {}
    own = module.named_parameters(recurse=False)
    return {name: times * param.numel() for name, param in own if "weight" in name}


def _attention_uses(
    module: nn.MultiheadAttention, queries: int, keys: int, values: int
) -> Mapping[str, int]:
    """Those of the projections: attention itself multiplies no weights."""
    size = module.embed_dim
    out = {"out_proj.weight": queries * size * size}
    if module._qkv_same_embed_dim:
        return out | {"in_proj_weight": (queries + keys + values) * size * size}
    parts = {"q_proj_weight": queries, "k_proj_weight": keys, "v_proj_weight": values}
    return out | {name: times * module.get_parameter(name).numel() for name, times in parts.items()}


def _positions(features: Any) -> int:
    """How many vectors of features a tensor holds, along its last dimension."""
    tensor = features.data if isinstance(features, PackedSequence) else features
    return int(tensor.numel() // tensor.shape[-1])


def _with_keywords(
    count: Any, module: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any], output: Any
) -> None:
    count(module, [*args, *keywords.values()], output)


def _call(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example_inputs, Mapping):
        return (), dict(example_inputs)
    if isinstance(example_inputs, tuple | list):
        return tuple(example_inputs), {}
    return (example_inputs,), {}


def _batch(inputs: list[Any]) -> int:
    for each in inputs:
        if isinstance(each, Tensor) and each.ndim > 0 and len(each) > 0:
            return len(each)
    raise InputError("the example inputs hold no tensor with a batch dimension")
