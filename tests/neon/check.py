"""The kernels on ARM, emulated: networks planned here, run there, compared with torch.

Needs aarch64-linux-gnu-gcc and qemu-aarch64. Run as `python tests/neon/check.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ["ASTERISM_KERNELS"] = "portable"

from asterism.runtime import Net
from asterism.runtime.library import Step
from networks import NETWORKS, answer, make, net_of

KERNELS = Path(__file__).parents[2] / "src/asterism/runtime/kernels"
SOURCES = ("run.c", "train.c", "plain.c", "portable.c")
FLAGS = ("-std=gnu11", "-O3", "-Wno-psabi", "-ffp-contract=fast", "-static")


def build(folder: Path) -> Path:
    program = folder / "replay"
    sources = [str(KERNELS / name) for name in SOURCES]
    own = str(Path(__file__).with_name("replay.c"))
    command = ["aarch64-linux-gnu-gcc", *FLAGS, f"-I{KERNELS}", own, *sources, "-lm", "-lpthread"]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program


def record(net: Net, x: np.ndarray) -> bytes:
    """A network and its input as replay.c reads them."""
    data, steps = bytearray(64), []
    for plan, table in zip(net.plans, net._tables, strict=True):
        for planned, row in zip(plan.steps, table, strict=True):
            step = Step.from_buffer_copy(row)
            for i, array in enumerate(planned.data):
                step.data[i] = len(data)
                data += np.ascontiguousarray(array).tobytes()
                data += bytes(-len(data) % 64)
            steps.append(bytes(step))
    counts = [len(table) for table in net._tables]
    scratch = max(plan.scratch for plan in net.plans)
    sizes = [int(np.prod(shape)) for shape in (net.input_shape, net.output_shape)]
    header = np.array([*counts, scratch, *sizes, len(x), len(data)], np.int64)
    return header.tobytes() + b"".join(steps) + bytes(data) + x.tobytes()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for name in NETWORKS:
            for density in (0.05, 0.5, 1.0):
                model, shape = make(name, density)
                net = net_of(model, shape)
                for batch in (1, 7, 33):
                    x = torch.randn(batch, *shape)
                    ran = subprocess.run(
                        ["qemu-aarch64", str(program)],
                        input=record(net, x.numpy()),
                        capture_output=True,
                        check=True,
                    )
                    truth = answer(model, x)
                    found = np.frombuffer(ran.stdout, np.float32).reshape(truth.shape)
                    least = 1e-5 * max(1, np.abs(truth).max())
                    np.testing.assert_allclose(found, truth, rtol=1e-4, atol=least)
            print(f"{name}: as torch", flush=True)


if __name__ == "__main__":
    main()
