"""Convolutions in whole numbers of 16 bits against our own kernels for floats, one thread."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from asterism.file import read
from asterism.runtime import Net, load
from asterism.runtime.ranges import with_ranges
from asterism.runtime.sixteen_bits import is_short
from benchmarks.networks import CASES, net, pruned
from benchmarks.timing import median_ratio

TRAINED = Path(__file__).parents[1] / "experiments/file/cifar10-slowly_l1@15-0.asterism"
NETWORKS = ("ResNet-8", "ResNet-20", "DS-CNN", "3×3, 64")
EXAMPLES, ROUNDS = 64, 100


def report() -> Iterator[str]:
    yield "convolutions in 16 bits, times as fast as in floats, and how far answers are apart:"
    for case in (case for case in CASES if case.name in NETWORKS):
        for density in (each for each in case.least if each < 0.5):
            model = pruned(case.make(), density).eval()
            tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
            name = f"{case.name:12} {100 * density:4.0f} %"
            yield from compare(name, net(model, case.shape), tensors)
    if TRAINED.exists():
        yield from compare("ResNet-8, trained  ", load(TRAINED), read(TRAINED).tensors)


def compare(name: str, floats: Net, tensors: dict[str, np.ndarray]) -> Iterator[str]:
    """A line for a network: single examples and batches of 16."""
    examples, x = floats.example(EXAMPLES)[0], floats.example(16)[0]
    short = Net(with_ranges(floats.graph, tensors, [examples]), tensors)
    apart = np.abs(floats(x) - short(x)).max() / np.abs(floats(x)).max()
    one, many = (
        median_ratio(lambda: floats(batch), lambda: short(batch), ROUNDS)  # noqa: B023
        for batch in (x[:1], x)
    )
    layers = sum(map(is_short, short.plans[0].steps))
    yield f"  {name}  {one:5.2f} / {many:.2f}×  {100 * apart:.3f} %  {layers} layers"


if __name__ == "__main__":
    for line in report():
        print(line, flush=True)
