"""Scikit-learn's digits, enlarged to MNIST's size: for where MNIST cannot be had."""

from __future__ import annotations

import numpy as np

from asterism.errors import missing
from asterism.experiments.data.datasets import Dataset, grey_images, partition


def digits() -> Dataset:
    """The 1,797 images as 1,297 / 200 / 300."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise missing("the digits dataset needs scikit-learn", "reproduce") from error
    found = load_digits()
    enlarged = found.images.repeat(3, axis=1).repeat(3, axis=2)
    pixels = np.pad(enlarged, ((0, 0), (2, 2), (2, 2)))
    pool = grey_images(pixels, found.target, brightest=16)
    train, validation, test = partition(pool, 1297, 200, 300)
    return Dataset("digits", train, validation, test)
