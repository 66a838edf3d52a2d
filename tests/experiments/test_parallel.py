"""Jobs in processes of their own: they end as one by one, and survive what befalls a process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from asterism.errors import InputError
from asterism.experiments.jobs import Job
from asterism.experiments.methods import Dense
from asterism.experiments.parallel import in_processes
from asterism.experiments.training import Watch
from support.work import die_at_first, fail_or_sleep, leave_a_note


def jobs(count: int) -> list[Job]:
    return [Job("dense", Dense(epochs=1), seed, "lenet300", threads=1) for seed in range(count)]


class Display:
    """What a monitor was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def __call__(self, job: Job, epochs: int) -> Iterator[Watch]:
        self.lines.append(f"{job.name} begins, {epochs}")
        yield lambda record: self.lines.append(f"{job.name} {record['epoch']}")
        self.lines.append(f"{job.name} ends")


def test_every_job_runs_once_in_other_processes(tmp_path: Path) -> None:
    display = Display()
    work = partial(leave_a_note, folder=tmp_path)
    done = list(in_processes(jobs(3), work, workers=2, resume=False, monitor=display))
    assert {job.seed for job in done} == {0, 1, 2}
    notes = [(tmp_path / f"dense-{seed}").read_text().split() for seed in range(3)]
    processes = {pid for pid, *_ in notes}
    assert len(processes) == 2
    assert str(os.getpid()) not in processes
    assert all(rest == ["False", "False"] for _, *rest in notes)
    for seed in range(3):
        mine = [line for line in display.lines if line.startswith(f"dense-{seed}")]
        assert mine == [f"dense-{seed} begins, 1", f"dense-{seed} 1", f"dense-{seed} ends"]


def test_a_process_that_is_killed_is_started_again_once_and_resumes(tmp_path: Path) -> None:
    work = partial(die_at_first, folder=tmp_path, times=(1, 2))
    done = in_processes(jobs(2), work, workers=1, resume=False, monitor=Display())
    assert next(done).seed == 0
    assert (tmp_path / "dense-0.0").read_text() == "False"
    assert (tmp_path / "dense-0.1").read_text() == "True"
    with pytest.raises(InputError, match=r"dense-1 was ended from outside, 2 times.*fewer --jobs"):
        next(done)


def test_an_error_of_one_job_ends_the_others(tmp_path: Path) -> None:
    work = partial(fail_or_sleep, folder=tmp_path)
    with pytest.raises(InputError, match="dense-1: the disk is full"):
        list(in_processes(jobs(2), work, workers=2, resume=False, monitor=Display()))
    if (tmp_path / "pid").exists():
        pid = int((tmp_path / "pid").read_text())
        for _ in range(100):
            if not Path(f"/proc/{pid}").exists() or "(zombie)" in _status(pid):
                return
            time.sleep(0.1)
        raise AssertionError("the other process is still there")


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return "(zombie)"
