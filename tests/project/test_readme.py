"""What the README shows, runs; what it links to, exists."""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from support.paths import ROOT

README = (ROOT / "README.md").read_text()


def digits() -> tuple[Tensor, ...]:
    """scikit-learn's digits: images and labels to train on, and others."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    inputs = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8)[order] / 16
    targets = torch.tensor(labels)[order]
    return inputs[:1400], targets[:1400], inputs[1400:], targets[1400:]


def small_network() -> nn.Sequential:
    """13,352 weights, as many as people have who try this on a laptop."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(96, 92), nn.ReLU(), nn.Linear(92, 10))


def test_the_example_keeps_what_it_says_and_a_small_network_bears_it():
    _, code, _ = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    model = small_network()
    images, labels, others, answers = digits()

    def train(model, optimizer, epochs=1):
        for _ in range(epochs):
            for batch in torch.randperm(len(images)).split(32):
                optimizer.zero_grad()
                F.cross_entropy(model(images[batch]), labels[batch]).backward()
                optimizer.step()

    def wrong():
        with torch.no_grad():
            return int((model(others).argmax(1) != answers).sum())

    train(model, torch.optim.Adam(model.parameters(), lr=2e-3), epochs=15)
    dense = wrong()
    exec(code, {"model": model, "train": train})
    weights = [param for param in model.parameters() if param.ndim > 1]
    total = sum(weight.numel() for weight in weights)
    assert sum(int(weight.count_nonzero()) for weight in weights) == round(0.1 * total)
    assert wrong() <= dense + 0.03 * len(answers)


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_commands_it_names_are_targets_of_the_makefile():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make (\w+)", README)) <= targets
    assert {"reproduce", "test", "lint", "bench", "nightly"} <= targets
