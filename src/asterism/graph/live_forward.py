"""A network that is trained through its non-zero weights alone.

Sparse retraining should cost what the sparse network costs. Here it does: forward and backward run
in compiled kernels over the non-zeros, whatever put the zeros there, and the model stays plain, so
that its optimizer notices nothing. A weight that is zero gets no gradient, and stays zero. Layers
with most of their weights have kernels of their own, which makes it fast for dense networks too.

Owns when that is exact and pays; which networks it works for is in `live.plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import asterism.kernels.library as library
from asterism.errors import InputError
from asterism.graph.capture import capture
from asterism.graph.live.blocks import Kernels, from_blocks, to_blocks
from asterism.graph.live.plain import NotLiveError as NotLiveError
from asterism.graph.live.plan import LivePlan
from asterism.graph.network import Graph
from asterism.weights.metrics import evaluating

# Shares of the weights left with which it pays, by the shape of a kernel, none for a matrix: more
# than one where it gains with all of them. See `make bench`.
WORTH = {(): 0.05, (3, 3): 2.0}
WORTH_OF_OTHERS = 0.3
Forward = Callable[[Tensor], Tensor]
Masks = Callable[[], Mapping[str, Tensor]]


def live_forward(model: nn.Module, example: Tensor, *, masks: Masks | None = None) -> Forward:
    """The model's forward through its non-zero weights, to train it by in place of `model(x)`.

        forward = live_forward(model, images[:1])
        loss = F.cross_entropy(forward(images), labels)
        loss.backward()

    For networks of convolutions, batch norm, additions, pooling, linear layers and ReLU, as ResNets
    are, in float32; InputError for others. `make bench` measures what it gains.

    model    its parameters are read at each call
    example  an input, of any batch size
    masks    gives masks by parameter name, as an optimizer's `masks` does: a weight that is zero
             and not pruned gets its gradient. Without it no zero does
    """
    loaded = library.load()
    if loaded is None:
        raise NotLiveError("there are no compiled kernels here: train the model itself")
    graph = _capture(model, example)
    kernels = Kernels(loaded, library.choose_level(loaded))
    plan = LivePlan(graph, model, kernels)
    steps = plan.steps()

    def forward(images: Tensor) -> Tensor:
        plan.may_learn = None if masks is None else masks()
        values = {0: to_blocks(images, kernels)}
        for step in steps:
            values[step.value] = step.run(len(images), *(values[i] for i in step.inputs))
        return from_blocks(values[graph.outputs[0]], len(images))

    with torch.no_grad(), evaluating(model):
        forward(example)  # an error for what cannot be trained, now and not later
    return forward


def _capture(model: nn.Module, example: Tensor) -> Graph:
    try:
        graph = capture(model, example)
    except InputError as error:
        raise NotLiveError(str(error)) from error
    if not graph.is_plain:
        raise NotLiveError("only a network with one input and one output can be trained live")
    return graph


def live_if_worth(model: nn.Module, masks: Masks, inputs: Sequence[Any]) -> Forward | None:
    """`live_forward` where it is exact and pays.

    It pays with few weights left, and for networks of 3×3 convolutions with any number.

    model   the network as it is trained
    masks   gives masks by parameter name, true where a weight is alive
    inputs  of a batch, on which both ways must agree: a network with dropout does not
    """
    if len(inputs) != 1 or not _pays(model, masks()):
        return None
    try:
        forward = live_forward(model, inputs[0][:1], masks=masks)
    except NotLiveError:
        return None
    return forward if _agree(model, forward, inputs[0]) else None


def _agree(model: nn.Module, forward: Forward, inputs: Tensor) -> bool:
    """Whether both give the same now; the model's running averages stay."""
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    with torch.no_grad():
        expected, found = model(inputs), forward(inputs)
        for buffer, before in buffers.items():
            buffer.copy_(before)
    near = 1e-4 * float(expected.abs().max())
    return expected.shape == found.shape and torch.allclose(expected, found, rtol=1e-3, atol=near)


def _pays(model: nn.Module, masks: Mapping[str, Tensor]) -> bool:
    cost = total = 0.0
    for name, param in model.named_parameters():
        if param.dim() > 1:
            alive = int(masks[name].sum()) if name in masks else param.numel()
            cost += alive / WORTH.get(tuple(param.shape[2:]), WORTH_OF_OTHERS)
            total += param.numel()
    return cost <= total
