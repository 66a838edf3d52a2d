"""A small transformer that writes one letter after another, made sparse in a loop of its own.

    python examples/text_transformer.py

The text is Python's own help, which ships with it. Attention, which torch keeps in one matrix for
queries, keys and values, and the feed-forward layers are made sparse; embeddings are left alone.
"""

from __future__ import annotations

import argparse
import math
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import asterism

CONTEXT, WIDTH = 64, 96


class Writer(nn.Module):
    """Letters in, the logits of each next letter out."""

    def __init__(self, letters: int, depth: int = 2) -> None:
        super().__init__()
        self.letter = nn.Embedding(letters, WIDTH)
        self.place = nn.Embedding(CONTEXT, WIDTH)
        block = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, depth, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, letters)

    def forward(self, text: Tensor) -> Tensor:
        length = text.shape[1]
        hidden = self.letter(text) + self.place(torch.arange(length))
        future = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.blocks(hidden, mask=future, is_causal=True))


def read_text() -> tuple[Tensor, list[str]]:
    """The help as numbers, and the letter of each number."""
    text = "\n".join(topics[name] for name in sorted(topics))
    letters = sorted(set(text))
    number = {letter: place for place, letter in enumerate(letters)}
    return torch.tensor([number[letter] for letter in text]), letters


def draw(text: Tensor, size: int = 32) -> Tensor:
    """Random passages, a letter longer than the context."""
    starts = torch.randint(len(text) - CONTEXT - 1, (size,))
    return torch.stack([text[start : start + CONTEXT + 1] for start in starts])


def loss_of(model: nn.Module, passages: Tensor) -> Tensor:
    return F.cross_entropy(model(passages[:, :-1]).flatten(0, 1), passages[:, 1:].flatten())


def train(model: nn.Module, optimizer: torch.optim.Optimizer, text: Tensor, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, draw(text)).backward()
        optimizer.step()


@torch.no_grad()
def bits_per_letter(model: nn.Module, text: Tensor) -> float:
    passages = text[: len(text) // (CONTEXT + 1) * (CONTEXT + 1)].view(-1, CONTEXT + 1)[:200]
    return loss_of(model, passages).item() / math.log(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds, to see that it works")
    parser.add_argument("--density", type=float, default=0.2)
    options = parser.parse_args()
    steps = 4 if options.quick else 600

    torch.manual_seed(0)
    text, letters = read_text()
    known, unseen = text[: -len(text) // 10], text[-len(text) // 10 :]
    model = Writer(len(letters))
    inner = torch.optim.AdamW(model.parameters(), lr=2e-3)
    train(model, inner, known, 2 * steps)
    print(f"dense: {bits_per_letter(model, unseen):.2f} bits per letter of unseen text")

    optimizer = asterism.AffineScaling(
        inner, model, asterism.ReweightedL1(), layers=asterism.AllLayers()
    )
    for _ in range(4):
        optimizer.reweight()
        train(model, optimizer, known, steps // 4)
    optimizer.prune(density=options.density)
    optimizer.flatten()
    print(f"cut: {bits_per_letter(model, unseen):.2f}")
    train(model, optimizer, known, steps)
    kept = sum(int(weight.count_nonzero()) for weight in optimizer.weights().values())
    total = sum(weight.numel() for weight in optimizer.weights().values())
    print(f"retrained: {bits_per_letter(model, unseen):.2f} with {kept:,} of {total:,} weights")


if __name__ == "__main__":
    main()
