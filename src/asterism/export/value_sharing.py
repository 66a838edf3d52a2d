"""Training with few values, tied: weights of one codebook entry move together, zeros not at all.

    assignments = quantise_(model, bits=4)
    with share_values_(model, assignments):
        train(model, optimizer)                 # your own loop; the plain metric, no re-weighting
    save(model, "net.asterism", bits=4)

The gradient of an entry is the sum of its weights' gradients, and each of these weights gets that
sum. Equal weights with equal gradients and equal optimizer state stay equal: start with a fresh
optimizer. Any elementwise optimizer will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from asterism.errors import InputError
from asterism.export.few_values import BitWidths, parameters_by_width, round_to_codebook

Assignments = dict[str, Tensor]
"""For each parameter the number of each weight's codebook entry; 0 is for the zeros."""


@torch.no_grad()
def quantise_(model: nn.Module, bits: BitWidths) -> Assignments:
    """Gives each parameter, or those that `bits` names, a codebook; returns which weights share."""
    assignments = {}
    for name, (param, width) in parameters_by_width(model, bits).items():
        param.copy_(round_to_codebook(param, width))
        assignments[name] = assign(param)
    return assignments


def assign(weights: Tensor) -> Tensor:
    """Equal weights get equal numbers, zeros get 0.

    >>> assign(torch.tensor([0.5, 0.0, -1.0, 0.5]))
    tensor([2, 0, 1, 2])
    """
    flat = weights.detach().flatten()
    numbers = torch.zeros(flat.shape, dtype=torch.long, device=flat.device)
    alive = flat != 0
    numbers[alive] = torch.unique(flat[alive], return_inverse=True)[1] + 1
    return numbers.view(weights.shape)


@contextmanager
def share_values_(model: nn.Module, assignments: Mapping[str, Tensor]) -> Iterator[None]:
    """While it lasts, gradients are summed over each codebook entry and zero for the zeros."""
    named = dict(model.named_parameters())
    for name, numbers in assignments.items():
        if name not in named or named[name].shape != numbers.shape:
            raise InputError(f"the assignments of {name} do not fit the model's parameters")
    handles: list[RemovableHandle] = []
    for name, numbers in assignments.items():
        register: Callable[..., RemovableHandle] = named[name].register_hook
        handles.append(register(partial(_tie, numbers)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tie(numbers: Tensor, grad: Tensor) -> Tensor:
    flat = numbers.flatten().to(grad.device)
    sums = torch.zeros(
        int(flat.max()) + 1 if len(flat) else 1, dtype=grad.dtype, device=grad.device
    )
    sums.index_add_(0, flat, grad.flatten())
    sums[0] = 0
    return sums[flat].view(grad.shape)
