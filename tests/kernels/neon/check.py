"""The kernels on ARM, emulated: the tests of the runtime, planned here and run there.

Needs aarch64-linux-gnu-gcc and qemu-aarch64. Run as `python tests/kernels/neon/check.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ["ASTERISM_KERNELS"] = "portable"

from asterism.kernels.library import Step
from asterism.runtime import Net

ROOT = Path(__file__).parents[3]
KERNELS = ROOT / "src/asterism/kernels"
SOURCES = ("run.c", "layers/plain.c", "portable.c")
FLAGS = ("-std=gnu11", "-O3", "-Wno-psabi", "-ffp-contract=fast", "-static")
TESTS = {
    "tests/runtime/test_net.py": "test_networks_answer_as_torch_does",
    "tests/runtime/test_layers.py": "portable",
}


def build(folder: str) -> str:
    program = f"{folder}/replay"
    sources = [str(KERNELS / name) for name in SOURCES]
    own = str(Path(__file__).with_name("replay.c"))
    command = ["aarch64-linux-gnu-gcc", *FLAGS, f"-I{KERNELS}", own, *sources, "-lm", "-lpthread"]
    subprocess.run([*command, "-o", program], check=True)
    return program


def record(net: Net, x: np.ndarray) -> bytes:
    """A network and its input as replay.c reads them."""
    data, steps = bytearray(64), []
    for plan in net.plans:
        for planned, row in zip(plan.steps, plan.table, strict=True):
            step = Step.from_buffer_copy(row)
            for i, array in enumerate(planned.data):
                step.data[i] = len(data)
                data += np.ascontiguousarray(array).tobytes()
                data += bytes(-len(data) % 64)
            steps.append(bytes(step))
    counts = [len(plan.steps) for plan in net.plans]
    scratch = max(plan.scratch for plan in net.plans)
    sizes = [int(np.prod(shape)) for shape in (net.input_shape, net.output_shape)]
    header = np.array([*counts, scratch, *sizes, len(x), len(data)], np.int64)
    return header.tobytes() + b"".join(steps) + bytes(data) + x.tobytes()


class Emulated:
    """In the place of `Net.__call__`; counts, so that nobody believes in tests that ran nothing."""

    def __init__(self, program: str) -> None:
        self.command, self.runs, self.here = ["qemu-aarch64", program], 0, Net.__call__

    def __call__(self, net: Net, x: np.ndarray) -> np.ndarray[Any, Any]:
        if net._few is None:  # nothing to compute
            return self.here(net, x)
        self.runs += 1
        recording = record(net, np.ascontiguousarray(x, np.float32))
        ran = subprocess.run(self.command, input=recording, capture_output=True, check=True)
        return np.frombuffer(ran.stdout, np.float32).reshape(len(x), *net.output_shape)


def main() -> None:
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        emulated = Emulated(build(folder))
        Net.__call__ = lambda net, x: emulated(net, x)
        for path, chosen in TESTS.items():
            status = pytest.main(["-q", "-p", "no:cacheprovider", path, "-k", chosen])
            if status:
                sys.exit(status)
        print(f"{emulated.runs} batches ran on ARM as they should")


if __name__ == "__main__":
    main()
