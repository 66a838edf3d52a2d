"""How much faster pruned networks run than dense ones do in ONNX Runtime, on one thread."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from asterism import engines
from asterism.capture import capture
from asterism.rebuild import rebuild
from asterism.runtime import Net, load
from benchmarks.timing import median_ratio

# FOCUSS at the standard budget, seed 0: 0.85 % of the weights, at 4 bits.
LENET5 = Path(__file__).parents[1] / "experiments/standard/lenet5-focuss-0.asterism"


def report() -> Iterator[str]:
    if importlib.util.find_spec("onnxruntime") is None:
        yield "the runtime against ONNX Runtime: skipped, onnxruntime is not installed"
        return
    yield "pruned networks in our runtime, dense ones in ONNX Runtime, one thread, times as fast:"
    yield from against_onnxruntime(
        "LeNet-5", pruned_lenet5(), (1, 28, 28), {1: 10, 64: 13, 1024: 13}
    )
    yield from against_onnxruntime("MLP, 2 %", pruned(mlp(), 0.02), (784,), {1: 11, 64: 22})
    yield from against_onnxruntime(
        "3×3, 10 %", pruned(convolutions(), 0.1), (64, 32, 32), {1: 5, 16: 5}
    )
    yield f"two threads against one, LeNet-5, batch 1024: {threads():.2f}×   (at least 1.7×)"
    yield f"import, load and first answer: {1e3 * cold():.0f} ms   (at most 100 ms)"


def against_onnxruntime(
    name: str, model: nn.Module, shape: tuple[int, ...], least: dict[int, int]
) -> Iterator[str]:
    dense = engines.onnxruntime(model.eval(), np.zeros((2, *shape), np.float32), 1)
    for row in engines.compare(net(model, shape), {"onnxruntime": dense}, list(least), budget=3.0):
        if row["engine"] == "onnxruntime":
            batch, speed_up = row["batch"], f"{row['speed_up']:5.1f}×"
            yield f"  {name:10} batch {batch:5} {speed_up}   (at least {least[batch]}×)"


def net(model: nn.Module, shape: tuple[int, ...], count: int = 1) -> Net:
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return Net(capture(model, torch.zeros(1, *shape)), tensors, threads=count)


def pruned(model: nn.Module, density: float) -> nn.Module:
    """All but the largest weights of each layer set to zero."""
    for param in model.parameters():
        if param.ndim > 1:
            threshold = torch.quantile(param.detach().abs().flatten()[: 10**6], 1 - density)
            param.data *= param.abs() > threshold
    return model


def pruned_lenet5() -> nn.Module:
    return rebuild(load(LENET5))


def mlp() -> nn.Module:
    widths = [(784, 1024), (1024, 1024)]
    layers = [layer for width in widths for layer in (nn.Linear(*width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


def convolutions() -> nn.Module:
    pairs = [(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*[layer for pair in pairs for layer in pair])


def threads() -> float:
    model, x = pruned_lenet5(), np.random.default_rng(0).random((1024, 1, 28, 28), np.float32)
    one, two = net(model, (1, 28, 28)), net(model, (1, 28, 28), 2)
    return median_ratio(lambda: one(x), lambda: two(x), rounds=100)


def cold() -> float:
    """A new process, less an empty one: our modules, numpy, the kernels and an answer."""
    program = (
        "import numpy as np; from asterism.graph import Graph, Node;"
        "from asterism.runtime import Net;"
        "w = np.zeros((10, 784), np.float32); w[:, ::99] = 1;"
        "Net(Graph((784,), (Node('linear', (0,), (0,)),)), {'w': w})(np.ones((1, 784), np.float32))"
    )
    ours = [run(program) for _ in range(7)]
    empty = [run("") for _ in range(7)]
    return float(np.median(ours) - np.median(empty))


def run(program: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - started
