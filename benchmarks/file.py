"""How small the file is, against the usual ways to store sparse weights, and how fast."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from asterism import file
from asterism.file.quantising import quantise
from asterism.file.summary import other_sizes

SPEED_NONZEROS = 1_000_000
LENET5 = {"conv1": (20, 1, 5, 5), "conv2": (50, 20, 5, 5), "fc1": (500, 800), "fc2": (10, 500)}
DENSITY = {"conv1": 0.3, "conv2": 0.04, "fc1": 0.004, "fc2": 0.055}
ALIVE = {"conv1": 0.5, "conv2": 0.5, "fc1": 0.22, "fc2": 1.0}


def report(runs: Path = Path("runs")) -> Iterator[str]:
    networks = {path.parent.name: path for path in sorted(runs.glob("*/*/model.safetensors"))}
    yield "bytes of the whole file, against the best of npz, CSR + zstd, bitmask + zstd:"
    yield from size_lines("LeNet-5, synthetic", lenet5())
    for name, path in networks.items():
        yield from size_lines(name, load(path))
    yield "fast mode, million non-zeros per second (at least 10), and memory beside the input, as a"
    yield "multiple of the decoded size (at most 2):"
    for density in (0.01, 0.05, 0.2, 1.0):
        for bits in (None, 4):
            yield f"  {100 * density:4.0f} % dense {fast_line(random_weight(density), bits)}"
    yield "small mode, kB of file per second (at least 1,000), as given and again from the file's"
    yield "own values, whose codebooks need no search; memory as above:"
    for name, tensors in {"LeNet-5, synthetic": lenet5(), "10 M MLP at 5 %": mlp()}.items():
        for bits in (None, 4):
            yield f"  {name:20} {small_line(tensors, bits)}"


def fast_line(weight: np.ndarray, bits: int | None) -> str:
    weight = weight if bits is None else quantise(weight, bits)  # its time is not the format's
    data = file.encode({"w": weight}, mode="fast")
    both = (lambda: file.encode({"w": weight}, mode="fast"), lambda: file.decode(data))
    write, read = (SPEED_NONZEROS / 1e6 / fastest(run) for run in both)
    more, most = (peak(run) / weight.nbytes for run in both)
    return (
        f"{'lossless' if bits is None else f'{bits} bits':8}   write {write:6.1f}"
        f"   read {read:6.1f}   memory {more:.2f} and {most:.2f}"
    )


def small_line(tensors: dict[str, np.ndarray], bits: int | None) -> str:
    data = file.encode(tensors, bits=bits)
    shown, size = file.decode(data).tensors, sum(array.nbytes for array in tensors.values())
    runs = {
        "write": lambda: file.encode(tensors, bits=bits),
        "again": lambda: file.encode(shown),
        "read": lambda: file.decode(data),
    }
    rounds = 20 if len(data) < 100_000 else 3
    rates = {name: len(data) / 1e3 / fastest(run, rounds) for name, run in runs.items()}
    return (
        f"{'lossless' if bits is None else f'{bits} bits':8} {len(data):9,} bytes   "
        + "   ".join(f"{name} {rate:6,.0f}" for name, rate in rates.items())
        + f"   memory {peak(runs['write']) / size:.2f} and {peak(runs['read']) / size:.2f}"
    )


def size_lines(name: str, tensors: dict[str, np.ndarray]) -> Iterator[str]:
    for bits in (None, 6, 5, 4):
        contents = file.decode(file.encode(tensors, bits=bits))
        nonzeros = sum(np.count_nonzero(a) for a in contents.tensors.values() if a.ndim > 1)
        if not 0 < nonzeros < sum(a.size for a in tensors.values()) / 4:
            return  # not pruned: nothing to show
        others = other_sizes(contents)
        best = min((size, other) for other, size in others.items() if other != "dense")
        positions = sum(usage.positions for usage in contents.usage.values()) / nonzeros
        yield (
            f"  {name:20} {'lossless' if bits is None else f'{bits} bits':8} {contents.size:7,}"
            f"   {best[1]} {best[0]:7,}   {best[0] / contents.size:.2f}×"
            f"   {positions:.2f} bits a position"
        )


def random_weight(density: float) -> np.ndarray:
    random = np.random.default_rng(0)
    weight = np.zeros((1000, int(SPEED_NONZEROS / density / 1000)), np.float32)
    places = random.choice(weight.size, SPEED_NONZEROS, replace=False)
    weight.reshape(-1)[places] = random.standard_normal(SPEED_NONZEROS)
    return weight


def mlp() -> dict[str, np.ndarray]:
    """Some rows and columns denser than others, as pruning leaves them."""
    random = np.random.default_rng(0)
    tensors = {}
    for i, (inputs, outputs) in enumerate(pairwise((1024, 3072, 2048, 256))):
        uneven = random.gamma(2, 0.5, (outputs, 1)) * random.gamma(2, 0.5, (1, inputs))
        alive = random.random((outputs, inputs)) < 0.05 * uneven
        weight = np.where(alive, random.standard_normal(alive.shape) / 10, 0)
        tensors[f"fc{i}.weight"] = weight.astype(np.float32)
        tensors[f"fc{i}.bias"] = (random.standard_normal(outputs) / 10).astype(np.float32)
    return tensors


def peak(run: Callable[[], object]) -> int:
    """The most bytes that it has at a time, its result included."""
    tracemalloc.start()
    run()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def fastest(run: Callable[[], object], rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        started = time.process_time()
        run()
        times.append(time.process_time() - started)
    return min(times)


def lenet5() -> dict[str, np.ndarray]:
    """Random, but with dead units where pruned networks have them."""
    random = np.random.default_rng(0)
    tensors, inputs = {}, np.ones(1, bool)
    for name, shape in LENET5.items():
        outputs = random.random(shape[0]) < ALIVE[name]
        live = np.repeat(inputs, shape[1] // len(inputs))
        grid = (outputs[:, None] & live).reshape(shape[:2] + (1,) * (len(shape) - 2))
        chance = DENSITY[name] / max(float(grid.mean()), 1e-9)
        alive = grid & (random.random(shape) < chance)
        weight = random.standard_normal(shape).astype(np.float32)
        tensors[f"{name}.weight"] = np.where(alive, weight, 0).astype(np.float32)
        bias = random.standard_normal(shape[0]) / 10
        tensors[f"{name}.bias"] = np.where(outputs, bias, 0).astype(np.float32)
        inputs = outputs
    return tensors


def load(path: Path) -> dict[str, np.ndarray]:
    from asterism.export.checkpoints import read_checkpoint, to_arrays

    return to_arrays(read_checkpoint(path))[0]
