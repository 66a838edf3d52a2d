"""Random numbers that do not depend on the sharding: the same in one process and on many ranks."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

from asterism.weights.sharding import from_local, place_of

BLOCK = 2**20  # positions whose noise comes from one seed


def standard_normal(like: Tensor, key: str) -> Tensor:
    """Gaussian noise that depends on the key and the position in the whole tensor only.

    like  the tensor whose shape, dtype and sharding the noise gets
    key   any text: another text gives other noise

    Each block of positions has a seed of its own, and a rank draws the blocks of its rows alone.
    """
    shape, offset = place_of(like)
    row = math.prod(like.shape[1:])
    start, stop = offset[0] * row, (offset[0] + shape[0]) * row
    blocks = [
        _block_of_noise(key, number, like)[max(start - first, 0) : stop - first]
        for number in range(start // BLOCK, -(-stop // BLOCK))
        for first in [number * BLOCK]
    ]
    noise = torch.cat(blocks) if blocks else torch.empty(0, dtype=like.dtype)
    noise = noise.view(shape[0], *like.shape[1:])
    for dim in range(1, like.ndim):
        noise = noise.narrow(dim, offset[dim], shape[dim])
    return from_local(noise.contiguous().to(like.device), like)


def _block_of_noise(key: str, number: int, like: Tensor) -> Tensor:
    key = f"{key}/{number}" if number else key
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
    size = min(BLOCK, like.numel() - number * BLOCK)
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=like.dtype)
