"""What a process does in the tests of jobs in processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from asterism.errors import InputError
from asterism.experiments.jobs import Job
from asterism.experiments.results import EpochRecord
from asterism.experiments.training import Watch

RECORD: EpochRecord = {
    "t": 0,
    "validation_error_percent": 1.0,
    "nonzeros": 1,
    "layers": {},
    "density_percent": 1.0,
    "kurtosis": {},
    "stage": "dense",
    "epoch": 1,
    "loss": 0.0,
    "seconds": 0.0,
}


def leave_a_note(job: Job, resume: bool, watch: Watch, *, folder: Path) -> None:
    watch(RECORD)
    note = folder / job.name
    note.write_text(f"{os.getpid()} {resume} {note.exists()}")


def die_at_first(
    job: Job, resume: bool, watch: Watch, *, folder: Path, times: Sequence[int]
) -> None:
    """As many times as is said for the job's seed."""
    tries = len(list(folder.glob(f"{job.name}.*")))
    (folder / f"{job.name}.{tries}").write_text(str(resume))
    if tries < times[job.seed]:
        os.kill(os.getpid(), signal.SIGKILL)


def fail_or_sleep(job: Job, resume: bool, watch: Watch, *, folder: Path) -> None:
    if job.seed == 1:
        raise InputError("the disk is full")
    (folder / "pid").write_text(str(os.getpid()))
    time.sleep(600)
