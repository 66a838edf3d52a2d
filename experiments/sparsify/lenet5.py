"""LeNet-5 on MNIST for `asterism sparsify`: the dense network of the reproduction, and its data.

    asterism reproduce --budget standard --methods dense --out runs/standard --resume
    asterism sparsify experiments/sparsify/lenet5.py:model --data experiments/sparsify/lenet5.py:data \
        --weights runs/standard/dense-0/model.safetensors --max-drop 0.2 --max-minutes 30 \
        --out runs/sparsify-lenet5

Only training and validation images are seen; run as a script, this file measures a result:

    python experiments/sparsify/lenet5.py runs/sparsify-lenet5/model.safetensors
"""  # noqa: E501

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from asterism.experiments.data import Split, load
from asterism.experiments.networks import lenet5
from asterism.export.checkpoints import load_into
from asterism.weights.metrics import error_percent


@dataclass(frozen=True)
class Batches:
    """Batches of tensors in memory, many times faster than collating single images."""

    split: Split
    size: int
    shuffle: bool

    def __len__(self) -> int:
        return -(-len(self.split.labels) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        count = len(self.split.labels)
        order = torch.randperm(count) if self.shuffle else torch.arange(count)
        for batch in torch.split(order, self.size):
            yield self.split.images[batch], self.split.labels[batch]


def model() -> nn.Module:
    """Channels-last, the faster layout on a CPU."""
    network = lenet5()
    for param in network.parameters():
        if param.ndim == 4:
            param.data = param.data.contiguous(memory_format=torch.channels_last)
    return network


def data() -> dict[str, Any]:
    """The metric is the error in per cent, so that max_drop is in points."""
    images = load("mnist")
    return {
        "train_loader": Batches(images.train, 128, shuffle=True),
        "valid_loader": Batches(images.validation, 1000, shuffle=False),
        "metric": wrong_percent,
        "higher_is_better": False,
    }


def wrong_percent(outputs: Tensor, labels: Tensor) -> float:
    return 100 * int((outputs.argmax(1) != labels).sum()) / len(labels)


def main() -> None:
    network, images = model(), load("mnist")
    load_into(network, Path(sys.argv[1]))
    weights = [param for param in network.parameters() if param.ndim > 1]
    kept = sum(int(weight.count_nonzero()) for weight in weights)
    share = 100 * kept / sum(weight.numel() for weight in weights)
    error = error_percent(network, images.test.images, images.test.labels)
    print(f"{kept} weights, {share:.2f} %, test error {error:.2f} %")


if __name__ == "__main__":
    main()
