"""What is measured of weights and models: moments, densities, live units, error.

Owns the counting and nothing else: it never changes a weight, and knows of no method, dataset
or file.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asterism.errors import InputError


def kurtosis(weights: Tensor) -> float:
    """E[((W − μ) / σ)⁴] over all entries, zeros included; nan where σ = 0.

    The moments are the population's, in float64. A Gaussian gives 3, a sparse tensor far more.

    >>> kurtosis(torch.tensor([-1.0, 1.0]))
    1.0
    """
    values = weights.detach().double().flatten()
    # Asked of the entries: the rounded mean of a constant can leave a σ that is not quite zero.
    if not (values != values[:1]).any():
        return math.nan
    centred = values - values.mean()
    return (centred / centred.square().mean().sqrt()).pow(4).mean().item()


def nonzeros(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """The number of non-zero entries of each tensor.

    >>> nonzeros({"fc": torch.tensor([0.0, 2.0, 0.0, 1.0])})
    {'fc': 2}
    """
    return {name: int(tensor.count_nonzero()) for name, tensor in tensors.items()}


def density_percent(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    """100 · non-zeros / entries of each tensor; nan for a tensor without entries.

    >>> density_percent({"fc": torch.tensor([0.0, 2.0, 0.0, 1.0])})
    {'fc': 50.0}
    """
    return {name: total_density_percent({name: tensor}) for name, tensor in tensors.items()}


def total_density_percent(tensors: Mapping[str, Tensor]) -> float:
    """100 · non-zeros / entries of all tensors together; nan where there are no entries.

    >>> total_density_percent({"fc1": torch.ones(1), "fc2": torch.zeros(3)})
    25.0
    """
    entries = sum(tensor.numel() for tensor in tensors.values())
    return 100 * sum(nonzeros(tensors).values()) / entries if entries else math.nan


def live_units(weight: Tensor) -> tuple[int, int]:
    """The units along dims 0 (outputs) and 1 (inputs) that have any non-zero weight.

    In a grouped convolution dim 1 is the input channel's place within its group.

    >>> live_units(torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]]))
    (1, 2)
    """
    if weight.ndim < 2:
        raise InputError(
            f"live_units needs a weight of two or more dimensions, not shape {tuple(weight.shape)}"
        )
    alive = weight != 0
    outputs, inputs = alive.flatten(1), alive.transpose(0, 1).flatten(1)
    return int(outputs.any(1).sum()), int(inputs.any(1).sum())


def error_percent(
    model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, batch_size: int = 1000
) -> float:
    """The percentage of images whose largest logit is not their label's."""
    return evaluate(model, images, labels, batch_size)[1]


@torch.inference_mode()
def evaluate(
    model: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, batch_size: int = 1000
) -> tuple[float, float]:
    """(mean cross-entropy in nats, error in percent) of a classifier, in eval mode.

    >>> evaluate(nn.Identity(), torch.tensor([[50.0, 0.0], [50.0, 0.0]]), torch.tensor([0, 1]))
    (25.0, 50.0)
    """
    if len(images) != len(labels) or len(labels) == 0:
        raise InputError(f"cannot evaluate {len(images)} images against {len(labels)} labels")
    loss, wrong = 0.0, 0
    with evaluating(model) if isinstance(model, nn.Module) else nullcontext():
        batches = zip(torch.split(images, batch_size), torch.split(labels, batch_size), strict=True)
        for batch, truth in batches:
            logits = model(batch)
            loss += F.cross_entropy(logits, truth, reduction="sum").item()
            wrong += int((logits.argmax(1) != truth).sum())
    return loss / len(labels), 100 * wrong / len(labels)


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Every module's own mode, train or eval, is after the block what it was before."""
    # Mode by mode, as a module that its owner had frozen in eval must stay frozen.
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode for the block, and every module's own mode after it."""
    with modes_kept(model):
        model.eval()
        yield
