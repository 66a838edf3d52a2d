"""How much faster pruned networks run in our runtime than in DeepSparse 1.8.0, on one core.

    python -m benchmarks.deepsparse [python3.11]

DeepSparse needs Python 3.11 at most and an older numpy than ours, so it gets an environment of its
own, build/deepsparse, made where it is missing. It is given the networks in their original shapes,
with all their zeros. The two run in turn, a process each.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import nn

from benchmarks import runtime
from benchmarks.timing import seconds

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / "build/deepsparse"
OPSET = 13  # DeepSparse knows none after 19
TURN, ROUNDS = 5e-3, 60  # seconds of calls, or one call


def report(python: str) -> Iterator[str]:
    install(python)
    yield "times as fast as DeepSparse 1.8.0, one core:"
    networks = {
        "LeNet-5": (
            runtime.pruned_lenet5(),
            (1, 28, 28),
            {1: "", 64: "   (at least 4×)", 1024: ""},
        ),
        "MLP, 2 %": (runtime.pruned(runtime.mlp(), 0.02), (784,), {1: "", 64: ""}),
        "3×3, 10 %": (runtime.pruned(runtime.convolutions(), 0.1), (64, 32, 32), {1: "", 16: ""}),
    }
    for name, (model, shape, batches) in networks.items():
        for batch, least in batches.items():
            x = np.random.default_rng(0).random((batch, *shape), np.float32)
            ours, theirs, ratio = compare(model.eval(), x)
            times = f"{1e6 * ours / batch:8.2f} µs against {1e6 * theirs / batch:8.2f} µs per image"
            yield f"  {name:10} batch {batch:5} {ratio:5.1f}×   {times}{least}"


def install(python: str) -> None:
    if not ENVIRONMENT.exists():
        subprocess.run([python, "-m", "venv", str(ENVIRONMENT)], check=True)
    pip = [str(ENVIRONMENT / "bin/pip"), "install", "--quiet", "deepsparse==1.8.0"]
    subprocess.run(pip, check=True)


def compare(model: nn.Module, x: np.ndarray) -> tuple[float, float, float]:
    """Seconds per batch of ours and of DeepSparse, and the median ratio of turns."""
    net = runtime.net(model, x.shape[1:])
    with tempfile.TemporaryDirectory() as folder:
        onnx, examples, answers = (f"{folder}/{name}" for name in ("net.onnx", "x.npy", "y.npy"))
        np.save(examples, x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                model, (torch.from_numpy(x),), onnx, dynamo=False, opset_version=OPSET
            )
        side = subprocess.Popen(
            [
                ENVIRONMENT / "bin/python",
                "-m",
                "benchmarks.deepsparse_side",
                onnx,
                examples,
                answers,
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with side:
            assert side.stdin is not None
            assert side.stdout is not None
            while side.stdout.readline().strip() not in ("ready", ""):
                pass  # it introduces itself
            np.testing.assert_allclose(net(x), np.load(answers), rtol=1e-3, atol=1e-4)
            turns = list(alternate(lambda: net(x), side.stdin, side.stdout))
    ours, theirs = zip(*turns, strict=True)
    ratio = statistics.median(b / a for a, b in turns)
    return statistics.median(ours), statistics.median(theirs), ratio


def alternate(
    run: Callable[[], object], asked: IO[str], told: IO[str]
) -> Iterator[tuple[float, float]]:
    def ask(calls: int) -> float:
        print(calls, file=asked, flush=True)
        return float(told.readline())

    ours, theirs = (max(1, int(TURN / time)) for time in (seconds(run, 3), ask(3)))
    for _ in range(ROUNDS):
        yield seconds(run, ours), ask(theirs)


if __name__ == "__main__":
    for line in report(*sys.argv[1:] or ["python3.11"]):
        print(line, flush=True)
