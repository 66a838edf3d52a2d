"""The state of every random generator a training loop may draw from, as plain data.

Owns taking and restoring it: a run that is continued draws what it would have drawn. What it makes
holds tensors, numbers and lists alone: a checkpoint of it is read without running code.
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
    device = _device()
    version, numbers, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(numbers), gauss],
        "numpy": [torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "device": [] if device is None else device.get_rng_state_all(),
        "given": [generator.get_state() for generator in generators],
    }


def restore(state: RandomState, generators: Sequence[torch.Generator] = ()) -> None:
    """The inverse of `capture`, with the same generators in the same order."""
    if len(generators) != len(state["given"]):
        raise InputError(
            f"the run was begun with {len(state['given'])} generators of its own, and now there are"
            f" {len(generators)}: continue with the same loaders and generators=[…]"
        )
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    device = _device()
    of_device = state.get("device", state.get("cuda"))  # its name when only CUDA's was saved
    if of_device and device is not None:
        device.set_rng_state_all(of_device)
    for generator, saved in zip(generators, state["given"], strict=True):
        generator.set_state(saved)


def _device() -> Any:
    """torch's module of the GPU or whatever else there is beside the CPU, if it can be saved."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or not torch.accelerator.is_available():
        return None
    module = torch.get_device_module(accelerator)
    return module if hasattr(module, "get_rng_state_all") else None
