"""ResNet-8 on CIFAR-10 for `asterism sparsify`: the dense network of the reproduction, and its data.

    asterism reproduce --budget cifar10 --methods dense --out runs/cifar10 --resume
    asterism sparsify experiments/sparsify/resnet8.py:model --data experiments/sparsify/resnet8.py:data \
        --weights runs/cifar10/dense-0/model.safetensors --max-drop 2 --max-epochs 60 \
        --out runs/sparsify-resnet8
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from asterism.experiments.data import Split, load
from asterism.experiments.data.augmentation import CROP_AND_FLIP
from asterism.experiments.networks import resnet8
from asterism.experiments.training import batches

SIZE = 128


@dataclass
class Training:
    """All images in another order each time, cropped and mirrored."""

    split: Split
    epochs: Iterator[int]

    def __len__(self) -> int:
        return -(-len(self.split.labels) // SIZE)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        images = len(self.split.labels)
        for batch in batches(self.split, images, 0, next(self.epochs), SIZE, CROP_AND_FLIP):
            yield batch.images, batch.labels


def model() -> nn.Module:
    return resnet8()


def data() -> dict[str, Any]:
    """The metric is the accuracy in per cent."""
    images = load("cifar10")
    seen = images.validation
    pairs = zip(torch.split(seen.images, 1000), torch.split(seen.labels, 1000), strict=True)
    return {"train_loader": Training(images.train, count()), "valid_loader": list(pairs)}
