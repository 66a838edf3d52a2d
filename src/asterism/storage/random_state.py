"""The state of every random generator a training loop may draw from, as plain data.

Owns taking and restoring it, so that a resumed run draws what it would have drawn. What it
makes holds tensors, numbers and lists alone: a checkpoint of it is read without running code.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from asterism.errors import InputError

RandomState = dict[str, Any]


def capture(generators: Sequence[torch.Generator] = ()) -> RandomState:
    """The states of Python's, NumPy's and torch's global generators, and of the given ones.

    >>> state = capture()
    >>> first = random.random(), torch.rand(()).item()
    >>> restore(state)
    >>> first == (random.random(), torch.rand(()).item())
    True
    """
    version, numbers, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(numbers), gauss],
        "numpy": [torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "given": [generator.get_state() for generator in generators],
    }


def restore(state: RandomState, generators: Sequence[torch.Generator] = ()) -> None:
    """The inverse of `capture`, with the same generators in the same order."""
    if len(generators) != len(state["given"]):
        raise InputError(
            f"the run was begun with {len(state['given'])} generators of its own, and now there are"
            f" {len(generators)}: resume with the same loaders and generators=[…]"
        )
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    for generator, saved in zip(generators, state["given"], strict=True):
        generator.set_state(saved)
