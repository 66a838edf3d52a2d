"""The processes of a distributed run: one for each rank."""

from __future__ import annotations

import multiprocessing
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
SECONDS = 600  # after which ranks that wait for each other are ended

Rank = Callable[[int, int, Path], None]


def run_ranks(work: Rank, folder: Path, world: int) -> list[str]:
    """Calls `work(rank, world, folder)` for all ranks at once; what each of them has printed.

    Forks, where that is safe, have torch already: to import it takes them longer than most work.
    """
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    given = [(work, rank, world, folder) for rank in range(world)]
    processes = [context.Process(target=_rank, args=each) for each in given]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that other threads of this process are not there
        for process in processes:
            process.start()
    try:
        for process in processes:
            process.join(SECONDS)
    finally:
        for process in processes:
            process.kill()
    printed = [_printed(folder, rank).read_text() for rank in range(world)]
    for process, text in zip(processes, printed, strict=True):
        assert process.exitcode == 0, text
    return printed


def _rank(work: Rank, rank: int, world: int, folder: Path) -> None:
    with _printed(folder, rank).open("w") as file, redirect_stdout(file), redirect_stderr(file):
        try:
            warnings.resetwarnings()
            work(rank, world, folder)
        except BaseException:
            traceback.print_exc()
            raise


def _printed(folder: Path, rank: int) -> Path:
    return folder / f"printed by {rank}"
