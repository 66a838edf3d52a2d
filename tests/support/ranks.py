"""The processes of a distributed run: one program for each rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

from support.paths import environment

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
SECONDS = 600  # after which ranks that wait for each other are ended


def run_ranks(program: ModuleType, folder: Path, world: int) -> list[str]:
    """Runs `program RANK WORLD FOLDER` for all ranks at once; what each of them has printed."""
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program.__file__), str(rank), str(world), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
        )
        for rank in range(world)
    ]
    try:
        outputs = [process.communicate(timeout=SECONDS)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    for process, output in zip(ranks, outputs, strict=True):
        assert process.returncode == 0, output
    return outputs
