"""The record's LeNet-5 on an emulated Cortex-M4: exported C beside the dense C of onnx2c.

    python -m benchmarks.microcontroller path/to/onnx2c

Prints a row for each: bytes of flash and RAM, and instructions for one image. Needs what
tests/export/c/emulated/check.py needs for its Cortex-M4.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

import numpy as np

from asterism.experiments.data.mnist import load as load_data
from asterism.export.onnx import onnx_bytes
from asterism.graph.rebuild import examples, rebuild
from asterism.runtime import Net, load

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/export/c/emulated"))

from check import AIMS, M4, MACHINES, export, images_header, run  # noqa: E402

SMALL = ROOT / "experiments/file/lenet5-record@1239-0.asterism"
WHOLE = ROOT / "experiments/record/lenet5-record@1239-0.asterism"
# What onnx2c writes, by the names that main.c expects.
AROUND = """
#include "{file}"
#include "net.h"
void net(const float *in, float *out, void *workspace)
{{
    (void)workspace;
    entry((const void *)in, (void *)out);
}}
"""
HEADER = """
#define NET_INPUT 784
#define NET_OUTPUT 10
#define NET_WORKSPACE 4
void net(const float *in, float *out, void *workspace);
"""


def dense(net: Net, onnx2c: str, folder: Path) -> None:
    """The network's C by onnx2c, as it is in its file: with all zeros."""
    (folder / "net.onnx").write_bytes(
        onnx_bytes(rebuild(net.graph, net.weights), examples(net.graph))
    )
    command = [onnx2c, "-d", "batch:1", str(folder / "net.onnx")]
    made = subprocess.run(command, capture_output=True, check=True).stdout
    (folder / "dense.c").write_bytes(made)
    (folder / "net.c").write_text(AROUND.format(file="dense.c"))
    (folder / "net.h").write_text(HEADER)


def sizes(folder: Path, flag: str) -> tuple[int, int]:
    """Bytes of flash, and of RAM that the code reserves itself."""
    made = str(folder / "net.o")
    command = ["arm-none-eabi-gcc", *M4, "-std=gnu99", flag, f"-I{folder}", "-c", "-o", made]
    subprocess.run([*command, str(folder / "net.c")], check=True)
    told = subprocess.run(["arm-none-eabi-size", made], capture_output=True, text=True, check=True)
    text, data, bss = map(int, told.stdout.splitlines()[1].split()[:3])
    return text + data, data + bss


def row(name: str, folder: Path, flag: str, workspace: int) -> str:
    images = np.random.default_rng(0).integers(0, 256, (20, 1, 28, 28), np.uint8)
    (folder / "images.h").write_text(images_header(images))
    machine = MACHINES[0]._replace(images=len(images))
    (flash, ram), (_, instructions) = sizes(folder, flag), run(machine, folder, [flag])
    return f"| {name}, `{flag}` | {flash:,} | {ram + workspace:,} | {instructions:,} |"


def main() -> None:
    print("| | Flash | RAM beside in and out | Instructions |\n|---|---|---|---|")
    examples_of_mnist = load_data("mnist").train.images[:500].numpy()
    for aim, flag in product(AIMS, ("-Os", "-O2")):
        with tempfile.TemporaryDirectory() as name:
            export(load(SMALL), aim, Path(name), examples_of_mnist)
            header = (Path(name) / "net.h").read_text()
            workspace = int(re.findall(r"NET_WORKSPACE (\d+)", header)[0])
            print(row(f"asterism, {aim}", Path(name), flag, workspace), flush=True)
    files = {"without dead units": SMALL, "as it was trained": WHOLE}
    for title, flag in product(files, ("-Os", "-O2")):
        with tempfile.TemporaryDirectory() as name:
            dense(load(files[title]), sys.argv[1], Path(name))
            print(row(f"onnx2c, {title}", Path(name), flag, 0), flush=True)


if __name__ == "__main__":
    main()
