"""Networks that people have, pruned at random, against dense engines on one thread."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from asterism.experiments.networks import resnet8, resnet20
from asterism.export import dense_engines as engines
from asterism.graph.capture import capture
from asterism.runtime import Net
from benchmarks.timing import median_ratio


class Case(NamedTuple):
    """A network, the shape of its input, and the least speed-up by density, at each batch size."""

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    least: dict[float, float]
    batches: tuple[int, ...] = (1, 16)


def ds_cnn() -> nn.Module:
    """The keyword spotting network of MLPerf Tiny."""

    def normed(conv: nn.Module) -> list[nn.Module]:
        return [conv, nn.BatchNorm2d(64), nn.ReLU()]

    layers = [nn.ZeroPad2d((1, 1, 4, 5)), *normed(nn.Conv2d(1, 64, (10, 4), 2))]
    for _ in range(4):
        layers += normed(nn.Conv2d(64, 64, 3, 1, 1, groups=64))
        layers += normed(nn.Conv2d(64, 64, 1))
    return nn.Sequential(*layers, nn.AvgPool2d((25, 5)), nn.Flatten(), nn.Linear(64, 12))


class Lstm(nn.Module):
    """512 units over 512 features, all steps of it."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(512, 512, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        steps: Tensor = self.rnn(x)[0]
        return steps


def transformer() -> nn.Module:
    """An encoder of four layers, each as wide as 256, with 1024 in between."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


def convolutions() -> nn.Module:
    """Four 3×3 convolutions of 64 channels."""
    pairs = [(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*[layer for pair in pairs for layer in pair])


CASES = (
    Case("ResNet-8", resnet8, (3, 32, 32), {1.0: 0, 0.2: 0, 0.1: 0, 0.05: 4, 0.02: 6}),
    Case("ResNet-20", resnet20, (3, 32, 32), {1.0: 0, 0.2: 0, 0.1: 3, 0.05: 5, 0.02: 8}),
    Case("DS-CNN", ds_cnn, (1, 49, 10), dict.fromkeys((1.0, 0.5, 0.2, 0.1), 0.95) | {0.05: 4.0}),
    Case("LSTM", Lstm, (100, 512), {0.05: 8}, (1,)),
    Case("Transformer", transformer, (128, 256), {0.05: 3}, (1, 16)),
    Case("3×3, 64", convolutions, (64, 32, 32), {0.1: 5}),
)


def report() -> Iterator[str]:
    if importlib.util.find_spec("onnxruntime") is None:
        yield "networks against dense engines: skipped, onnxruntime is not installed"
        return
    yield "pruned networks here, times as fast as dense ones in other engines, one thread:"
    lost: list[str] = []
    for case in CASES:
        for density, least in case.least.items():
            yield from compare(case, density, least, lost)
    yield from lost or ["  no dense engine is ahead on any of these"]
    for case in CASES[:3]:
        yield f"  {case.name}, 5 %, batch 64, two threads against one: {threads(case):.2f}×"


def compare(
    case: Case, density: float, least: float, lost: list[str], budget: float = 1.5
) -> Iterator[str]:
    """A line for each batch size and engine; to `lost` go those where the engine is ahead."""
    model = pruned(case.make(), density).eval()
    example = (np.zeros((2, *case.shape), np.float32),)
    dense = {
        name: engine
        for name, engine in engines.find(model, example, 1).items()
        if not name.startswith("torch")
    }
    rows = engines.compare(net(model, case.shape), dense, case.batches, budget)
    lost += [f"  {case.name}, {100 * density:.0f} %: {line}" for line in engines.ahead(rows)]
    for row in rows:
        if row["engine"] != "asterism":
            wanted = f"   (at least {least:g}×)" if least and row["engine"] == "onnxruntime" else ""
            name = f"{case.name:12} {100 * density:4.0f} %  batch {row['batch']:3}"
            yield f"  {name}  {row['engine']:15} {row['speed_up']:6.2f}×{wanted}"


def threads(case: Case) -> float:
    """How many times faster two threads are on a batch of 64."""
    model = pruned(case.make(), 0.05).eval()
    one, two = (net(model, case.shape, count) for count in (1, 2))
    x = one.example(64)[0]
    return median_ratio(lambda: one(x), lambda: two(x), rounds=60)


def pruned(model: nn.Module, density: float) -> nn.Module:
    """Of every matrix and kernel, weights at random places; as many of each layer."""
    torch.manual_seed(0)
    for param in model.parameters():
        if param.ndim > 1:
            param.data *= torch.rand_like(param) < density
    return model


def net(model: nn.Module, shape: tuple[int, ...], count: int = 1) -> Net:
    """The model in our runtime."""
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return Net(capture(model, torch.zeros(1, *shape)), tensors, threads=count)
