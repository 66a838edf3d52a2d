"""N:M sparsity: of every M consecutive weights along the input, the N largest stay.

The layout is that of the hardware which multiplies such matrices: M neighbours among the input
features of a linear layer (the last dimension), and among the input channels of a convolution, at
each position of its kernel. Pure functions of tensors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from asterism.errors import InputError
from asterism.pruning.scores import OUT


@dataclass(frozen=True)
class NToM:
    """At most `keep` of every `block` neighbours."""

    keep: int
    block: int

    def __str__(self) -> str:
        return f"{self.keep}:{self.block}"

    def fits(self, theta: Tensor, dim: int) -> bool:
        return theta.shape[dim] % self.block == 0


def parse(text: str) -> NToM:
    """The N:M that a text stands for.

    >>> parse("2:4")
    NToM(keep=2, block=4)
    """
    found = re.fullmatch(r"(\d+):(\d+)", text) if isinstance(text, str) else None
    keep, block = map(int, found.groups()) if found else (0, 0)
    if not 0 < keep < block:
        raise InputError(f"n_to_m is N:M with 0 < N < M, such as '2:4', got {text!r}")
    return NToM(keep, block)


def select(theta: Tensor, kept: Tensor, ratio: NToM, dim: int) -> Tensor:
    """The mask: in each block the largest magnitudes, ties to the earlier; the dead stay dead.

    theta  a weight
    kept   true where it is alive
    ratio  how many stay in a block of how many
    dim    the dimension along which the weight reads its input

    >>> theta = torch.tensor([[3.0, -1.0, 1.0, -4.0]])
    >>> select(theta, theta != 0, NToM(2, 4), dim=1)
    tensor([[ True, False, False,  True]])
    """
    scores = theta.abs().masked_fill(~kept, OUT).movedim(dim, -1)
    blocks = scores.reshape(-1, ratio.block)
    best = blocks.argsort(dim=1, descending=True, stable=True)[:, : ratio.keep]
    mask = torch.zeros_like(blocks, dtype=torch.bool).scatter_(1, best, True)
    return mask.view(scores.shape).movedim(-1, dim).contiguous() & kept
