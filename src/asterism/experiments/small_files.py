"""Codebooks for a trained network, learnt through its live weights; and what its file costs.

Owns the loop that the smallest files are made by, and how the error of a file is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from asterism.experiments.data import Dataset, Split
from asterism.experiments.data.augmentation import Augment
from asterism.experiments.training import batches
from asterism.export.codebooks import Codebooks
from asterism.graph.live_forward import live_forward
from asterism.runtime import load as load_file
from asterism.scaling.schedules import warmup_cosine
from asterism.weights.metrics import error_percent, evaluating

SETTLED = 0.6


@dataclass(frozen=True)
class Learning:
    """How codebooks are learnt.

    epochs      after SETTLED of them the codebooks stay as they are, as each change moves many
                weights at once: from then on weights choose among them
    lr          the highest learning rate
    price       of a bit, at the end; it rises during the first half
    batch_size  images a step
    augment     changes the images of each batch
    """

    epochs: int
    lr: float
    price: float = 0.0
    batch_size: int = 128
    augment: Augment | None = None


def bits_by_parameter(network: nn.Module, weights: list[int], biases: int) -> dict[str, int]:
    """The bits of each parameter's values.

    network  whose parameters they are
    weights  of all weights, or layer by layer
    biases   of all others
    """
    named = dict(network.named_parameters())
    layers = weight_names(network)
    asked = weights * len(layers) if len(weights) == 1 else weights
    return dict.fromkeys(named, biases) | dict(zip(layers, asked, strict=True))


def weight_names(network: nn.Module) -> list[str]:
    """Of matrices and kernels: biases and batch norms are others."""
    return [name for name, param in network.named_parameters() if param.dim() > 1]


def learn_codebooks(
    network: nn.Module,
    data: Dataset,
    bits: Mapping[str, int],
    how: Learning,
    seed: int,
    watch: Callable[[int, float], None],
) -> None:
    """Gives a network's parameters few values, and trains it on with them, in place.

    network  whose zeros stay zero; its batch norms follow the batches where they are in training
             mode
    data     training images, and validation images for `watch`
    bits     by parameter, as `bits_by_parameter` gives them
    how      the settings
    seed     decides the order of the images and their augmentation
    watch    called after each epoch with its number and the validation error
    """
    forward = live_forward(network, data.train.images[:1])
    sgd = torch.optim.SGD(network.parameters(), lr=how.lr, momentum=0.9, nesterov=True)
    optimizer = Codebooks(sgd, network, bits)
    images = len(data.train.labels)
    rate, steps = warmup_cosine(how.lr), how.epochs * -(-images // how.batch_size)
    for epoch in range(how.epochs):
        optimizer.price = how.price * min(1, 2 * epoch / how.epochs)
        if epoch == int(SETTLED * how.epochs):
            optimizer.renew_every = steps + 1
        for batch in batches(data.train, images, seed, epoch, how.batch_size, how.augment):
            optimizer.param_groups[0]["lr"] = rate(optimizer.steps / steps)
            optimizer.zero_grad()
            loss = F.cross_entropy(forward(batch.images), batch.labels)
            torch.autograd.backward(loss)
            optimizer.step()
        with evaluating(network):
            error = error_percent(forward, data.validation.images, data.validation.labels)
        watch(epoch + 1, error)


def error_of_file(path: Path, split: Split) -> float:
    """In per cent, of a file as the runtime runs it."""
    outputs = torch.from_numpy(load_file(path)(split.images.numpy()))
    return 100 * int((outputs.argmax(1) != split.labels).sum()) / len(split.labels)
