"""Datasets by their names."""

from __future__ import annotations

from pathlib import Path

from asterism.errors import InputError
from asterism.experiments.data.cifar10 import cifar10
from asterism.experiments.data.datasets import Dataset, data_folder
from asterism.experiments.data.digits import digits
from asterism.experiments.data.mnist import mnist

NAMES = {"mnist": "MNIST", "digits": "digits", "cifar10": "CIFAR-10"}


def load(name: str, root: Path | None = None) -> Dataset:
    """The dataset `name`, in its three parts.

    mnist    55,000 / 5,000 / 10,000 images of 1×28×28
    digits   1,297 / 200 / 300 of scikit-learn's, enlarged to 1×28×28
    cifar10  45,000 / 5,000 / 10,000 of 3×32×32

    Files are kept in the folder `root`/name and downloaded there if missing; `root` is by default
    the environment variable ASTERISM_DATA, else ~/.cache/asterism.

    >>> load("digits").train.images.shape
    torch.Size([1297, 1, 28, 28])
    """
    if name == "digits":
        return digits()
    if name == "mnist":
        return mnist((root or data_folder()) / "mnist")
    if name == "cifar10":
        return cifar10((root or data_folder()) / "cifar10")
    raise InputError(
        f"no dataset is called {name!r}; choose one of {', '.join(NAMES)}, or name a function of"
        " your own: net.py:loaders"
    )
