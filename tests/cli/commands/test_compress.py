"""`asterism compress --fold-norms`: a smaller file that does the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import asterism

NET = """
import torch
from torch import nn
from asterism.export.checkpoints import write_checkpoint

def model():
    layers = [nn.Conv2d(1, 12, 3, bias=False), nn.BatchNorm2d(12), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(12 * 36, 10))

def loaders():
    torch.manual_seed(0)
    batch = torch.randn(64, 1, 8, 8), torch.randint(0, 10, (64,))
    return [batch], [batch]

def main(path):
    torch.manual_seed(0)
    trained = model().train()
    trained(loaders()[0][0][0] + 1)
    nn.init.uniform_(trained[1].weight, 0.5, 2)
    write_checkpoint(path, trained.state_dict())
"""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("normed")
    (folder / "net.py").write_text(NET)
    made: dict[str, object] = {}
    exec(compile(NET, "net.py", "exec"), made)
    made["main"](folder / "net.safetensors")  # type: ignore[operator]
    return folder / "net.safetensors"


def options(weights: Path) -> list[object]:
    net = weights.with_name("net.py")
    return ["--model", f"{net}:model", "--data", f"{net}:loaders"]


@pytest.mark.parametrize("more", [[], ["--max-drop", "5"]])
def test_the_file_is_smaller_and_as_accurate(
    weights: Path, tmp_path: Path, more: list[object]
) -> None:
    sizes, metrics = {}, {}
    for name, fold in (("plain", []), ("folded", ["--fold-norms"])):
        out = tmp_path / f"{name}.asterism"
        done = asterism(
            "compress", weights, *options(weights), *fold, *more, "--out", out, "--json"
        )
        assert done.returncode == 0, done.stderr
        sizes[name] = json.loads(done.stdout)["bytes"]
        done = asterism(
            "evaluate", out, "--data", f"{weights.with_name('net.py')}:loaders", "--json"
        )
        assert done.returncode == 0, done.stderr
        metrics[name] = json.loads(done.stdout)["metric"]
    assert sizes["folded"] < sizes["plain"]
    if not more:
        assert metrics["folded"] == metrics["plain"]


@pytest.mark.parametrize("out", ["net.asterism", "net.safetensors"])
def test_it_needs_the_network_and_writes_our_format(
    weights: Path, tmp_path: Path, out: str
) -> None:
    given = options(weights) if out.endswith("safetensors") else []
    done = asterism("compress", weights, *given, "--fold-norms", "--out", tmp_path / out)
    assert done.returncode == 2
    assert "--fold-norms changes the network: add --model" in " ".join(done.stderr.split())
    assert not (tmp_path / out).exists()
