"""A network and its data, as every command takes them: copy this file and put in your own.

    python examples/net.py      # trains it on scikit-learn's digits, some seconds: net.safetensors

Then `asterism sparsify examples/net.py:model --data examples/net.py:loaders --weights
net.safetensors --max-drop 1 --out runs/net`, and what it prints at the end.
"""

from __future__ import annotations

import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import asterism

Loader = DataLoader[tuple[Tensor, ...]]


def model() -> nn.Module:
    """A small CNN with 13,584 weights, untrained."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def loaders() -> tuple[Loader, Loader]:
    """Digits to train on and digits to measure on."""
    images, labels = load_digits(return_X_y=True)
    inputs = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    order = torch.Generator().manual_seed(0)
    shuffled = torch.randperm(len(inputs), generator=order)
    data = TensorDataset(inputs[shuffled], torch.tensor(labels)[shuffled])
    train, valid = torch.utils.data.random_split(data, [1300, 497], order)
    return DataLoader(train, 64, shuffle=True, generator=order), DataLoader(valid, 497)


def trained() -> nn.Module:
    """The same, trained for some seconds."""
    torch.manual_seed(0)
    network = model()
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    asterism.supervised(*loaders()).fit(network, optimizer, epochs=25)
    return network


if __name__ == "__main__":
    network = trained()
    save_file(network.state_dict(), "net.safetensors")
    accuracy = asterism.supervised(*loaders()).evaluate(network)
    print(f"{accuracy:.2f} % of the validation digits are right")
