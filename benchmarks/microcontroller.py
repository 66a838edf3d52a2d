"""Exported C on an emulated Cortex-M4 and on this machine, beside dense C and our own runtime.

    python -m benchmarks.microcontroller [--onnx2c PROGRAM] [--keep FOLDER]

Prints a row for each network and form: bytes of weights, of flash and of RAM, instructions for one
image under the emulator, and microseconds here. With onnx2c's program its dense C is measured too.
With a folder the networks are kept there, for `benchmarks.tflite_micro`. Needs what
tests/export/c/emulated/check.py needs for its Cortex-M4.
"""

from __future__ import annotations

import argparse
import copy
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from examples.net import loaders
from torch import nn

import asterism
from asterism.errors import InputError
from asterism.experiments.data import load as load_data
from asterism.experiments.networks import lenet300, resnet8
from asterism.export.onnx import onnx_bytes
from asterism.file import write
from asterism.graph.network import encode
from asterism.graph.rebuild import examples, rebuild
from asterism.graph.stages import Array
from asterism.runtime import Net, load

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/export/c/emulated"))

from check import AIMS, M4, MACHINES, export, images_header, run  # noqa: E402

RECORD = ROOT / "experiments/file/lenet5-record@1239-0.asterism"
TRAINED = ROOT / "experiments/record/lenet5-record@1239-0.asterism"
SEEN = 10  # images that the emulator runs
KEPT = 0.05  # of the weights of networks that were not trained

OPTIONS = {
    "size": "",
    "speed": " `--for speed`",
    "8 bits": " `--int8`",
    "8 bits, least RAM": " `--int8 --for ram`",
}

# What onnx2c writes, by the names that main.c expects.
AROUND = """
#include "dense.c"
#include "net.h"
void net(const float *in, float *out, void *workspace)
{
    (void)workspace;
    entry((const void *)in, (void *)out);
}
"""
HEADER = """
#define NET_INPUT %d
#define NET_OUTPUT %d
#define NET_WORKSPACE 4
void net(const float *in, float *out, void *workspace);
"""
CLOCK = """
#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include "net.h"
#ifdef NET_INPUT_SCALE
typedef int8_t number;
#else
typedef float number;
#endif
static number out[NET_OUTPUT];
static int32_t workspace[NET_WORKSPACE / 4];
#ifdef NET_INPUT_AT
#define RUN() net(out, workspace)
#else
static number in[NET_INPUT];
#define RUN() net(in, out, workspace)
#endif
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}
int main(void)
{
    double least = 1e30;
    for (int round = 0; round < 20; round++) {
        double start = now();
        int count = 0;
        do RUN(); while (++count < 20 || now() - start < 5e3);
        double each = (now() - start) / count;
        if (each < least) least = each;
    }
    printf("%.2f\\n", least);
}
"""


class Case(NamedTuple):
    """A network, what it is called in the table, and examples of what it is used on."""

    name: str
    net: Net
    images: Array


class Row(NamedTuple):
    """What a form of a network takes; None where it was not measured."""

    form: str
    weights: int | None
    flash: int | None
    ram: int | None
    instructions: int | None
    microseconds: float

    def __str__(self) -> str:
        sizes = ["–" if size is None else f"{size:,}" for size in self[1:5]]
        return f"| {' | '.join([self.form, *sizes, f'{self.microseconds:.1f}'])} |"


def cases() -> Iterator[Case]:
    mnist = load_data("mnist").train.images[:500].numpy()
    yield Case("LeNet-5 of the record", load(RECORD), mnist)
    yield Case("LeNet-300-100, 5 % of its weights, at random", _at_random(lenet300(), mnist), mnist)
    yield _digits()
    noise = np.random.default_rng(0).random((100, 3, 32, 32), np.float32)
    yield Case("ResNet-8, 5 % of its weights, at random", _at_random(resnet8(), noise), noise)


def _at_random(model: nn.Module, images: Array) -> Net:
    """A network as it begins, with the weights that chance keeps."""
    torch.manual_seed(0)
    for param in model.parameters():
        if param.ndim > 1:
            param.data *= torch.rand_like(param) < KEPT
    return _saved(model, images)


def _digits() -> Case:
    """A small fully connected network on scikit-learn's digits, as `sparsify` leaves it."""
    torch.manual_seed(0)
    layers = (nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model, task = nn.Sequential(nn.Flatten(), *layers), asterism.supervised(*loaders())
    task.fit(model, torch.optim.AdamW(model.parameters(), lr=3e-3), epochs=25)
    found = asterism.sparsify(model, task, max_drop=1.0, max_epochs=60)
    images = next(iter(loaders()[1]))[0].numpy()
    return Case(f"MLP on digits, {found.best.nonzeros} weights", _saved(model, images), images)


def _saved(model: nn.Module, images: Array) -> Net:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "net.asterism"
        asterism.save(copy.deepcopy(model).eval(), path, example_inputs=(torch.tensor(images[:1]),))
        return load(path)


def dense(net: Net, onnx2c: str, folder: Path) -> None:
    """The network's C by onnx2c, as it is in its file: with all zeros."""
    (folder / "net.onnx").write_bytes(
        onnx_bytes(rebuild(net.graph, net.weights), examples(net.graph))
    )
    command = [onnx2c, "-d", "batch:1", str(folder / "net.onnx")]
    made = subprocess.run(command, capture_output=True, check=True).stdout
    (folder / "dense.c").write_bytes(made)
    (folder / "net.c").write_text(AROUND)
    ends = math.prod(net.input_shape), math.prod(net.output_shape)
    (folder / "net.h").write_text(HEADER % ends)


def sizes(folder: Path, flag: str) -> tuple[int, int]:
    """Bytes of flash, and of RAM that the code reserves itself."""
    made = str(folder / "net.o")
    command = ["arm-none-eabi-gcc", *M4, "-std=gnu99", flag, f"-I{folder}", "-c", "-o", made]
    subprocess.run([*command, str(folder / "net.c")], check=True)
    told = subprocess.run(["arm-none-eabi-size", made], capture_output=True, text=True, check=True)
    text, data, bss = map(int, told.stdout.splitlines()[1].split()[:3])
    return text + data, data + bss


def microseconds(folder: Path, flag: str) -> float:
    """Of one image on this machine, the shortest of twenty turns."""
    (folder / "clock.c").write_text(CLOCK)
    program, files = folder / "clock", [str(folder / "clock.c"), str(folder / "net.c")]
    subprocess.run(["cc", "-std=gnu99", flag, *files, "-lm", "-o", str(program)], check=True)
    return float(subprocess.run([program], capture_output=True, text=True, check=True).stdout)


def row(form: str, folder: Path, flag: str, weights: int | None) -> Row:
    header = (folder / "net.h").read_text()
    inputs, _, workspace = (int(found) for found in re.findall(r"NET_\w+ (\d+)", header)[:3])
    images = np.random.default_rng(0).integers(0, 256, (SEEN, inputs), np.uint8)
    (folder / "images.h").write_text(images_header(images))
    machine = MACHINES[0]._replace(images=SEEN)
    (flash, ram), (_, instructions) = sizes(folder, flag), run(machine, folder, [flag])
    reserved = ram if ram else workspace
    return Row(
        f"{form}, `{flag}`", weights, flash, reserved, instructions, microseconds(folder, flag)
    )


def rows(case: Case, onnx2c: str | None) -> Iterator[Row]:
    for aim, flag in AIMS.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            try:
                export(case.net, aim, folder, case.images)
            except InputError as error:
                print(f"{case.name}, {aim}: {error}", file=sys.stderr)
                continue
            told = re.search(r"([\d,]+) bytes of tables", (folder / "net.h").read_text())
            assert told is not None
            option = OPTIONS[aim]
            yield row(f"asterism{option}", folder, flag, int(told[1].replace(",", "")))
    yield Row("asterism, the runtime", None, None, None, None, _runtime(case.net))
    files = {"": case.net, " before units died": load(TRAINED) if "record" in case.name else None}
    for title, net in files.items():
        if onnx2c is None or net is None:
            continue
        with tempfile.TemporaryDirectory() as name:
            dense(net, onnx2c, Path(name))
            given = [weight for layer in net.layers for weight in layer.weights]
            weights = 4 * sum(weight.size for weight in given if weight is not None)
            yield row(f"onnx2c{title}", Path(name), "-O2", weights)


def _runtime(net: Net) -> float:
    x, times = net.example(1)[0], []
    for _ in range(2000):
        start = time.perf_counter()
        net(x)
        times.append(time.perf_counter() - start)
    return 1e6 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--onnx2c")
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    for case in cases():
        if asked.keep:
            tensors = {f"w{place}": weight for place, weight in enumerate(case.net.weights)}
            name = "-".join(case.name.split(",")[0].lower().split())
            write(asked.keep / f"{name}.asterism", tensors, graph=encode(case.net.graph))
        print(f"\n{case.name}\n")
        print("| | Weights | Flash | RAM | Instructions | µs here |\n|---|---|---|---|---|---|")
        for found in rows(case, asked.onnx2c):
            print(found, flush=True)


if __name__ == "__main__":
    main()
