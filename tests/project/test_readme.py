"""What the README shows, runs; what it links to, exists."""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F

from support.networks import make_mlp
from support.paths import ROOT

README = (ROOT / "README.md").read_text()


def test_the_example_runs_and_keeps_what_it_says():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    model = make_mlp()
    images, labels = torch.rand(64, 1, 28, 28), torch.randint(0, 10, (64,))

    def train(model, optimizer):
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()

    exec(code, {"model": model, "train": train})
    weights = [param for param in model.parameters() if param.ndim == 2]
    total = sum(weight.numel() for weight in weights)
    assert sum(int(weight.count_nonzero()) for weight in weights) == round(0.01 * total)


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_commands_it_names_are_targets_of_the_makefile():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make (\w+)", README)) <= targets
    assert {"reproduce", "test", "lint", "bench", "nightly"} <= targets
