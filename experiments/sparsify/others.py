"""Networks that nobody tuned the defaults for: a CNN and an MLP on 8×8 digits, a transformer on text.

    python experiments/sparsify/others.py cnn            # trains it dense: runs/others/cnn.safetensors
    asterism sparsify experiments/sparsify/others.py:cnn --data experiments/sparsify/others.py:digits \
        --weights runs/others/cnn.safetensors --max-drop 1 --max-epochs 300 --out runs/others/cnn

and so for `mlp`; for `transformer` with `:text`, --max-drop 0.05 (nats per character) and
--max-epochs 80. The digits are scikit-learn's, the text is Python's own language reference.
"""  # noqa: E501

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import asterism
from asterism.export.checkpoints import write_checkpoint

WIDTH, CONTEXT, ALPHABET = 64, 64, 96
VALIDATION = 400  # of the 1,797 digits
EPOCHS = {"cnn": 60, "mlp": 60, "transformer": 20}


@dataclass(frozen=True)
class Batches:
    inputs: Tensor
    targets: Tensor
    size: int
    shuffle: bool

    def __len__(self) -> int:
        return -(-len(self.targets) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        count = len(self.targets)
        order = torch.randperm(count) if self.shuffle else torch.arange(count)
        for batch in torch.split(order, self.size):
            yield self.inputs[batch], self.targets[batch]


def cnn() -> nn.Module:
    def block(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]

    pooled = [*block(1, 32), *block(32, 64), nn.MaxPool2d(2), *block(64, 64), nn.MaxPool2d(2)]
    return nn.Sequential(*pooled, nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def mlp() -> nn.Module:
    hidden = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(256, 10))


class Transformer(nn.Module):
    """Two layers over characters, causal."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ALPHABET, WIDTH)
        self.position = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, ALPHABET)

    def forward(self, characters: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
        hidden = self.embedding(characters) + self.position
        logits: Tensor = self.head(self.encoder(hidden, mask=mask, is_causal=True))
        return logits


def transformer() -> nn.Module:
    return Transformer()


def digits() -> dict[str, Any]:
    """The metric is the accuracy in per cent."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.from_numpy(found.images).float()[:, None] / 16
    labels = torch.from_numpy(found.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, validation = order[VALIDATION:], order[:VALIDATION]
    return {
        "train_loader": Batches(images[train], labels[train], 64, shuffle=True),
        "valid_loader": Batches(images[validation], labels[validation], 400, shuffle=False),
    }


def text() -> dict[str, Any]:
    """The metric is the cross-entropy in nats per character."""
    from pydoc_data.topics import topics

    codes = torch.tensor([min(max(ord(c) - 31, 0), ALPHABET - 1) for c in "".join(topics.values())])
    rows = codes[: len(codes) // (CONTEXT + 1) * (CONTEXT + 1)].view(-1, CONTEXT + 1)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    train, validation = rows[order[500:]], rows[order[:500]]
    return {
        "train_loader": Batches(train[:, :-1], train[:, 1:], 64, shuffle=True),
        "valid_loader": Batches(validation[:, :-1], validation[:, 1:], 250, shuffle=False),
        "loss": nats,
        "metric": nats,
        "higher_is_better": False,
    }


def nats(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main() -> None:
    name = sys.argv[1]
    torch.manual_seed(0)
    model: nn.Module = {"cnn": cnn, "mlp": mlp, "transformer": transformer}[name]()
    task = asterism.supervised(**(text if name == "transformer" else digits)())
    task.fit(model, torch.optim.AdamW(model.parameters(), lr=2e-3), EPOCHS[name])
    path = Path("runs/others") / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_checkpoint(path, model.state_dict())
    print(f"{path}: metric {task.evaluate(model):.3f}")


if __name__ == "__main__":
    main()
