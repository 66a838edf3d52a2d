"""What a model of 124 M parameters costs: a step, a re-weighting, and a cut in time and memory.

    python -m benchmarks.scale SCORE

cuts once, in a process of its own whose peak memory can be read, and prints what that took.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from asterism import AffineScaling, AllLayers, ReweightedL1
from benchmarks.gpt2 import GPT2, random_gpt2
from benchmarks.timing import median_ratio

ROUNDS = 5
DENSITY = 0.1


def report() -> Iterator[str]:
    yield "GPT-2 small's shapes, 124 M parameters, all weights made sparse, embeddings too:"
    yield f"  AffineScaling(AdamW) step over AdamW's {step_ratio():6.2f}×   (at most 1.10×)"
    yield f"  reweight() of all layers over AdamW's step {reweight_ratio():.2f}×   (at most 2.00×)"
    for score in ("lamp", "magnitude"):
        cost = cut_in_a_process(score)
        yield (
            f"  global cut by {score:9} {cost['seconds']:13.2f} s   (at most 2 s;"
            f" {cost['processor']:.2f} s of processor time), extra memory {cost['memory']:.2f} of"
            " the weights' size   (at most 0.50)"
        )


def wrapped(model: GPT2) -> AffineScaling:
    """With every matrix a target."""
    adam = torch.optim.AdamW(model.parameters(), lr=1e-5)
    return AffineScaling(adam, model, ReweightedL1(0.1), layers=AllLayers(), include=["*"])


def step_ratio() -> float:
    plain, model = random_gpt2(), random_gpt2()
    alone, around = torch.optim.AdamW(plain.parameters(), lr=1e-5), wrapped(model)
    around.reweight()

    def step() -> None:
        for param in model.parameters():
            assert param.grad is not None
            param.grad.add_(0.0)  # as new: a gradient is taken to q-space once
        around.step()

    def step_alone() -> None:
        for param in plain.parameters():
            assert param.grad is not None
            param.grad.add_(0.0)
        alone.step()

    return median_ratio(step, step_alone, rounds=ROUNDS)


def reweight_ratio() -> float:
    plain, model = random_gpt2(), random_gpt2()
    alone, around = torch.optim.AdamW(plain.parameters(), lr=1e-5), wrapped(model)
    return median_ratio(around.reweight, alone.step, rounds=ROUNDS)


# ---------------------------------------------------------------------- one cut


def cut_in_a_process(score: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.scale", score]
    folder = Path(__file__).parent.parent
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    cost: dict[str, float] = json.loads(done.stdout)
    return cost


def cut(score: str) -> dict[str, float]:
    model = random_gpt2(gradients=False)
    optimizer = wrapped(model)
    before = memory_of("VmRSS")
    started, worked = time.perf_counter(), time.process_time()
    optimizer.prune(density=DENSITY, score=score)
    seconds, processor = time.perf_counter() - started, time.process_time() - worked
    weights = sum(weight.nbytes for weight in optimizer.weights().values())
    memory = (memory_of("VmHWM") - before) / weights
    return {"seconds": seconds, "processor": processor, "memory": memory}


def memory_of(entry: str) -> int:
    """Of this process: VmRSS is what it holds now, VmHWM the most it has held.

    Not ru_maxrss, which begins with what the parent held.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith(f"{entry}:")]
    return int(kilobytes) * 1024


if __name__ == "__main__":
    print(json.dumps(cut(sys.argv[1])))
