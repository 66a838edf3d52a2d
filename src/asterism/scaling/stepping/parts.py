"""A step of some weights alone, by the inner optimizer's own code.

Where each weight's step depends on no other weight, numbers of a layer, or of many layers, can take
theirs by themselves, to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as of_torch

from asterism.scaling.layer import Layer
from asterism.scaling.stepping import inner_optimizer as inner

Group = dict[str, Any]
Regularise = Callable[[Layer, Tensor], None]
"""What becomes of some numbers of a layer, or of several alike, after the inner step."""


def takes_any_part(optimizer: Optimizer) -> bool:
    """Whether a step of this optimizer is the same weight by weight, and nobody listens to it."""
    hooks = (
        optimizer._optimizer_step_pre_hooks,
        optimizer._optimizer_step_post_hooks,
        of_torch._global_optimizer_pre_hooks,
        of_torch._global_optimizer_post_hooks,
    )
    step = vars(optimizer).get("step")
    ours = step is None or hasattr(step, "_wrapped_by_lr_sched")
    return inner.is_elementwise(optimizer) and ours and not any(hooks)


def is_divisible(optimizer: Optimizer, group: Group, state: Mapping[str, Any]) -> bool:
    """Whether a parameter of that group and state can be stepped on in parts."""
    if group.get("capturable") or group.get("differentiable"):
        return False
    # The first step makes the state; plain SGD has none.
    return bool(state) or (type(optimizer) is torch.optim.SGD and not group["momentum"])


def make_part(
    optimizer: Optimizer, group: Group, q: nn.Parameter, state: dict[str, Any]
) -> Optimizer:
    """An optimizer of the same kind and settings for q alone."""
    part = object.__new__(type(optimizer))
    vars(part).update(vars(optimizer))
    vars(part).pop("step", None)  # which counts the calls, where a scheduler has put it there
    part.param_groups = [{**group, "params": [q]}]
    part.state = {q: state} if state else {}  # type: ignore[assignment]
    return part


@contextmanager
def hidden(layers: Sequence[Layer]) -> Iterator[None]:
    """Without the gradients of these layers, for the inner step of the others."""
    gradients = [layer.param.grad for layer in layers]
    for layer in layers:
        layer.param.grad = None
    try:
        yield
    finally:
        for layer, gradient in zip(layers, gradients, strict=True):
            layer.param.grad = gradient
