"""GPT-2 small's weights as plain modules: 124 M parameters, random, with random gradients."""

from __future__ import annotations

import torch
from torch import nn

WIDTH, BLOCKS, WORDS, CONTEXT = 768, 12, 50257, 1024


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)


class GPT2(nn.Module):
    """Its shapes alone, and its tied embedding: nothing is ever computed with it."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight


@torch.no_grad()
def random_gpt2(gradients: bool = True) -> GPT2:
    torch.manual_seed(0)
    model = GPT2()
    for param in model.parameters():
        if param.ndim > 1:
            param.normal_(std=0.02)
        if gradients:
            param.grad = torch.empty_like(param).normal_(std=1e-3)
    return model
