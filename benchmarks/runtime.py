"""How much faster pruned networks run than dense ones do in ONNX Runtime, on one thread."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from asterism.export import dense_engines as engines
from asterism.graph.capture import capture
from asterism.graph.rebuild import rebuild
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
    yield from against_onnxruntime("LSTM, 5 %", pruned(Lstm(), 0.05), (100, 512), {1: 8})
    yield f"two threads against one, LeNet-5, batch 1024: {threads():.2f}×   (at least 1.7×)"
    numpy, ours = cold()
    yield f"import, load and first answer: {1e3 * ours:.0f} ms   (at most 100 ms)"
    yield f"  of which numpy's own import: {1e3 * numpy:.0f} ms"
    yield from arithmetic()


def against_onnxruntime(
    name: str, model: nn.Module, shape: tuple[int, ...], least: dict[int, int]
) -> Iterator[str]:
    dense = engines.onnxruntime(model.eval(), (np.zeros((2, *shape), np.float32),), 1)
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
    net = load(LENET5)
    return rebuild(net.graph, net.weights)


def mlp() -> nn.Module:
    widths = [(784, 1024), (1024, 1024)]
    layers = [layer for width in widths for layer in (nn.Linear(*width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


def convolutions() -> nn.Module:
    pairs = [(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*[layer for pair in pairs for layer in pair])


class Lstm(nn.Module):
    """512 units over 512 features, all steps of it."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(512, 512, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps: torch.Tensor = self.rnn(x)[0]
        return steps


def images(count: int) -> np.ndarray:
    return np.random.default_rng(0).random((count, 1, 28, 28), np.float32)


def threads() -> float:
    model, x = pruned_lenet5(), images(1024)
    one, two = net(model, (1, 28, 28)), net(model, (1, 28, 28), 2)
    return median_ratio(lambda: one(x), lambda: two(x), rounds=100)


COLD = f"""
from time import perf_counter
began = perf_counter()
import numpy as np
numpy = perf_counter() - began
from asterism.runtime import load
load({str(LENET5)!r})(np.ones((1, 1, 28, 28), np.float32))
print(numpy, perf_counter() - began)
"""


def cold() -> tuple[float, float]:
    """Seconds until a new process has imported numpy, and until it has the first answer."""
    # Modules are compiled already, as they are where it was installed.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", COLD]
    runs = [subprocess.check_output(command, env=environment, text=True) for _ in range(16)]
    numpy, answer = np.median([[float(n) for n in run.split()] for run in runs[1:]], axis=0)
    return float(numpy), float(answer)


def arithmetic() -> Iterator[str]:
    """Products of non-zero weights, out of those that a dense product computes in the time."""
    lenet5, x = net(pruned_lenet5(), (1, 28, 28)), images(1024)
    torch.set_num_threads(1)
    a, b, out = (torch.rand(1024, 1024) for _ in range(3))  # so large that it is all arithmetic
    ratio = median_ratio(lambda: torch.mm(a, b, out=out), lambda: lenet5(x), rounds=60)
    times = np.median([lenet5._own.profile(x, True) for _ in range(60)], axis=0)
    parts, done, lines = times / times.sum(), 0.0, []
    for step, part in zip(lenet5.plans[True].steps, parts, strict=True):
        share = ""
        if step.kernel.startswith(("CONV", "FC")):
            positions = math.prod(lenet5.shapes[step.layer.place + 1][1:])
            mine = len(x) * positions * np.count_nonzero(step.layer.weight) / 1024**3 * ratio
            done, share = done + mine, f", at {mine / part:.0%}"
        lines.append(f"  {step.kernel:12} {part:4.0%} of the time{share}")
    yield f"LeNet-5, batch 1024, products of non-zeros: {done:.0%} as many per second as of dense"
    yield "  matrices of 1024 × 1024   (at least 60 %)"
    yield from lines
