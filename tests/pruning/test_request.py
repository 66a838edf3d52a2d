"""Requests that cannot mean anything are refused before a weight is looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from asterism import InputError
from asterism.pruning.request import Request
from support.explicit import make_model, wrap


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "exactly one of density, threshold, n_to_m and masks"),
        ({"density": 0.1, "threshold": 0.1}, "exactly one of density, threshold, n_to_m and masks"),
        ({"density": 0.1, "score": "lucky"}, "unknown score 'lucky': choose from magnitude, lamp"),
        ({"density": "0.5"}, "density must be a number, such as 0.1, got '0.5'"),
        ({"density": [0.5]}, r"density must be a number, such as 0.1, got \[0.5\]"),
        ({"density": {"fc1": "0.5"}}, "density must be a number, such as 0.1, got '0.5'"),
        ({"density": {}}, r"density=\{\} names no layer: .* as in density=\{'fc\*': 0.1\}"),
        ({"threshold": "0.5"}, "threshold must be a number, such as 0.01, got '0.5'"),
        ({"threshold": {}}, r"threshold=\{\} names no layer"),
        ({"n_to_m": {}}, r"n_to_m=\{\} names no layer: .* as in n_to_m=\{'fc\*': '2:4'\}"),
        ({"threshold": 0.1, "at_most": True}, "at_most=True is about a density"),
    ],
)
def test_what_is_wrong_is_named(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Request(**asked)
    with pytest.raises(InputError, match=message):
        wrap(make_model()).prune(**asked)


@pytest.mark.parametrize("density", [1, 0.5, np.float32(0.5), torch.tensor(0.5)])
def test_any_number_is_a_density(density: Any) -> None:
    wrap(make_model()).prune(density=density)


def test_prune_takes_at_most() -> None:
    optimizer = wrap(make_model())
    optimizer.prune(density=0.5)
    before = optimizer.masks()
    optimizer.prune(density=0.7, at_most=True)
    assert all(torch.equal(before[name], mask) for name, mask in optimizer.masks().items())
    with pytest.raises(InputError, match="pruned weights do not come back"):
        optimizer.prune(density=0.7)
