"""What a dataset is: images and labels in three parts, split once and for all."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

SPLIT_SEED = 0


@dataclass(frozen=True, eq=False)
class Split:
    """Images, float32 of shape (N, channels, height, width), channels last; labels, int64 of (N,).

    Grey images are in [0, 1], those in colour have mean 0 and deviation 1.
    """

    images: Tensor
    labels: Tensor


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named dataset and its three disjoint parts."""

    name: str
    train: Split
    validation: Split
    test: Split


def with_validation(data: Dataset) -> Dataset:
    """The same, but trained on the validation images as well."""
    parts = (data.train, data.validation)
    images = torch.cat([part.images.permute(0, 2, 3, 1) for part in parts])  # channels last
    labels = torch.cat([part.labels for part in parts])
    return replace(data, train=Split(images.permute(0, 3, 1, 2), labels))


def data_folder() -> Path:
    return Path(os.environ.get("ASTERISM_DATA") or "~/.cache/asterism").expanduser()


def partition(pool: Split, *sizes: int) -> list[Split]:
    # NumPy promises never to change RandomState's stream; other generators may with a release.
    order = torch.from_numpy(np.random.RandomState(SPLIT_SEED).permutation(len(pool.labels)))
    parts = torch.split(order, list(sizes))
    return [Split(pool.images[part], pool.labels[part]) for part in parts]


def grey_images(pixels: npt.NDArray[Any], labels: npt.NDArray[Any], brightest: int) -> Split:
    images = torch.from_numpy(pixels.astype(np.float32)).div_(brightest)
    # With a single channel `.contiguous(memory_format=torch.channels_last)` leaves the strides
    # as they are, and a convolution would still take the images for channels first.
    images = images.reshape(-1, 28, 28, 1).permute(0, 3, 1, 2)
    return Split(images, torch.from_numpy(labels.astype(np.int64)))
