"""A network that is trained through its non-zero weights alone.

Sparse retraining should cost what the sparse network costs. Here it does: forward and backward run
in compiled kernels over the non-zeros, whatever put the zeros there, and the model stays plain, so
that its optimizer notices nothing. A weight that is zero gets no gradient, and stays zero.

Owns which networks that works for, and the layout: blocks of images, 32 side by side, as (blocks,
channels, height, width, 32), so that one weight is one long multiplication.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

import asterism.kernels.library as library
from asterism.errors import InputError
from asterism.graph.capture import capture
from asterism.graph.network import Graph, Node
from asterism.graph.operations.pooling import halves

BLOCK = 32  # images, as in kernels/program.h
WORTH = 0.05  # of the weights left: with twice as many dense kernels are faster
Forward = Callable[[Tensor], Tensor]


class NotLiveError(InputError):
    """The network, or this installation, cannot be trained through the non-zeros alone."""


def live_forward(model: nn.Module, example: Tensor) -> Forward:
    """The model's forward through its non-zero weights, to train it by in place of `model(x)`.

        forward = live_forward(model, images[:1])
        loss = F.cross_entropy(forward(images), labels)
        loss.backward()

    For networks of convolutions, 2×2 max-pooling, linear layers and ReLU, in float32; InputError
    for others. At 1 % non-zeros a step took a quarter of the time; `make bench` measures it.
    """
    kernels = library.load()
    if kernels is None:
        raise NotLiveError("there are no compiled kernels here: train the model itself")
    graph = _capture(model, example)
    names = list(model.state_dict())
    params = dict(model.named_parameters())
    layers = _layers(graph, [params.get(name) for name in names])
    level = library.choose_level(kernels)

    def forward(images: Tensor) -> Tensor:
        filled = F.pad(images.flatten(1), (0, 0, 0, -len(images) % BLOCK))
        value = filled.view(-1, BLOCK, filled.shape[1]).transpose(1, 2).contiguous()
        value = value.reshape(len(value), *graph.input_shape, BLOCK)
        for layer in layers:
            value = layer(kernels, level, value)
        logits: Tensor = value.flatten(1, -2).transpose(1, 2).flatten(0, 1)[: len(images)]
        return logits

    with torch.no_grad():
        forward(example)  # what cannot be trained so says it now
    return forward


def _capture(model: nn.Module, example: Tensor) -> Graph:
    try:
        return capture(model, example)
    except InputError as error:
        raise NotLiveError(str(error)) from error


def live_if_worth(
    model: nn.Module, masks: Mapping[str, Tensor], inputs: Sequence[Any]
) -> Forward | None:
    """`live_forward` where it is exact and pays: few weights left, and every zero pruned for good.

    masks   by parameter name, true where a weight is alive
    inputs  of a batch, on which both ways must agree: a network with dropout does not
    """
    if len(inputs) != 1 or not _is_sparse(model, masks):
        return None
    try:
        forward = live_forward(model, inputs[0][:1])
    except NotLiveError:
        return None
    with torch.no_grad():
        expected, found = model(inputs[0]), forward(inputs[0])
    near = 1e-4 * float(expected.abs().max())
    same = expected.shape == found.shape and torch.allclose(expected, found, rtol=1e-3, atol=near)
    return forward if same else None


def _is_sparse(model: nn.Module, masks: Mapping[str, Tensor]) -> bool:
    alive = total = 0
    for name, param in model.named_parameters():
        if param.dim() > 1:
            nonzeros = int(param.count_nonzero())
            if nonzeros < (int(masks[name].sum()) if name in masks else param.numel()):
                return False  # a zero that may yet learn
            alive, total = alive + nonzeros, total + param.numel()
    return alive <= WORTH * total


@dataclass(frozen=True)
class _Layer:
    """A convolution or a linear layer, with what follows it."""

    weight: nn.Parameter
    bias: nn.Parameter | None
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    pool: bool = False
    relu: bool = False
    flat: bool = False

    def __call__(self, kernels: ctypes.CDLL, level: int, value: Tensor) -> Tensor:
        if self.flat:
            value = value.reshape(len(value), -1, 1, 1, BLOCK)
        if any(self.padding):
            down, right = self.padding
            value = F.pad(value, (0, 0, right, right, down, down))
        weight = self.weight if self.weight.dim() == 4 else self.weight[:, :, None, None]
        bias = self.weight.new_zeros(len(weight)) if self.bias is None else self.bias
        made: Tensor = _Taps.apply(value, weight, bias, self, kernels, level)  # type: ignore[no-untyped-call]
        return F.relu(made) if self.relu else made


class _Taps(Function):
    """The kernels' forward and backward, for autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        value: Tensor,
        weight: Tensor,
        bias: Tensor,
        layer: _Layer,
        kernels: ctypes.CDLL,
        level: int,
    ) -> Tensor:
        value, weight, bias = value.contiguous(), weight.contiguous(), bias.contiguous()
        blocks, channels, height, width, _ = value.shape
        units, _, kernel_h, kernel_w = weight.shape
        stride_h, stride_w = layer.stride
        out_h = (height - kernel_h) // stride_h + 1
        out_w = (width - kernel_w) // stride_w + 1
        if layer.pool and (out_h % 2 or out_w % 2):
            raise NotLiveError(f"2×2 max-pooling of {out_h}×{out_w} values leaves some out")
        sizes = (ctypes.c_int64 * 12)(
            *(channels, height, width, units, kernel_h, kernel_w, stride_h, stride_w),
            *(out_h, out_w, blocks, layer.pool),
        )
        shrink = 2 if layer.pool else 1
        made = value.new_empty(blocks, units, out_h // shrink, out_w // shrink, BLOCK)
        winner = torch.empty(made.shape if layer.pool else 0, dtype=torch.int32)
        _check(kernels.asterism_taps_forward(level, sizes, *_at(weight, bias, value, made, winner)))
        ctx.save_for_backward(value, weight, winner)
        ctx.call = sizes, kernels, level
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        value, weight, winner = ctx.saved_tensors
        sizes, kernels, level = ctx.call
        gradient = gradients[0].contiguous()
        to_weight, to_bias = torch.zeros_like(weight), weight.new_zeros(len(weight))
        to_value = torch.zeros_like(value) if ctx.needs_input_grad[0] else None
        given = _at(weight, value, gradient, winner, to_weight, to_bias, to_value)
        _check(kernels.asterism_taps_backward(level, sizes, *given))
        return to_value, to_weight, to_bias, None, None, None


def _at(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


def _check(status: int) -> None:
    if status:
        raise MemoryError("no memory for a layer's rows")


def _layers(graph: Graph, weights: list[nn.Parameter | None]) -> list[_Layer]:
    """The graph as a chain of layers, each with its pooling and activation; InputError if it is not
    one."""
    layers: list[dict[str, Any]] = []
    if not graph.is_plain:
        raise NotLiveError("only a network with one input and one output can be trained so")
    flat = len(graph.input_shape) == 1
    for place, node in enumerate(graph.nodes):
        if node.inputs != (place,):
            raise NotLiveError("only a plain chain of layers can be trained through its non-zeros")
        if node.op in ("conv", "linear"):
            layers.append(_weighted(node, weights) | {"flat": flat and node.op == "linear"})
            flat = False
        elif node.op == "flatten":
            flat = True
        elif node.op == "relu" and layers and not layers[-1].get("relu"):
            layers[-1]["relu"] = True
        elif halves(node) and layers and not layers[-1].get("pool") and not flat:
            layers[-1]["pool"] = True
        else:
            raise NotLiveError(f"{node.op} cannot be trained through the non-zeros alone")
    return [_Layer(**layer) for layer in layers]


def _weighted(node: Node, weights: list[nn.Parameter | None]) -> dict[str, Any]:
    weight, bias = node.given(weights)
    if weight is None or weight.dtype != torch.float32 or weight.device.type != "cpu":
        raise NotLiveError("only parameters of type float32 on the CPU can be trained so")
    if node.op == "linear":
        return {"weight": weight, "bias": bias}
    if node["groups"] != 1 or node.pair("dilation") != (1, 1):
        raise NotLiveError("grouped and dilated convolutions cannot be trained so")
    stride, padding = node.pair("stride"), node.pair("padding")
    return {"weight": weight, "bias": bias, "stride": stride, "padding": padding}
