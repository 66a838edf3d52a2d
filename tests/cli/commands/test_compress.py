"""`asterism compress`: smaller files with folded norms, faster ones in 16 bits."""

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


def test_16_bits_are_measured_before_and_after(weights: Path, tmp_path: Path) -> None:
    floats, short = tmp_path / "net.asterism", tmp_path / "short.asterism"
    assert asterism("compress", weights, *options(weights), "--out", floats).returncode == 0
    data = options(weights)[2:]
    done = asterism("compress", floats, "--int16", *data, "--out", short, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert abs(found["metric_float"] - found["metric_int16"]) <= 2
    assert 0 < short.stat().st_size - floats.stat().st_size < 20  # a byte for each value
    told = asterism("compress", weights, *options(weights), "--int16", "--out", short)
    assert "in floats" in told.stdout
    assert "in 16 bits" in told.stdout


def test_16_bits_need_examples_and_a_graph(weights: Path, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "net.asterism"]
    without = asterism("compress", weights, "--int16", *out)
    assert "add --data net.py:loaders" in without.stderr
    alone = asterism("compress", weights, "--int16", *options(weights)[2:], *out)
    assert "add --model net.py:model" in alone.stderr
    assert not list(tmp_path.iterdir())
