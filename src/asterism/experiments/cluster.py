"""The jobs of a reproduction on many machines: through Dask, or as an array of Slurm's.

A job is one row on one seed, with a folder of its own that all machines see. Who is at work in it
holds its lock: another worker waits, and then reads the result. A job whose worker dies is given to
another one, which continues it from its last epoch.
"""

from __future__ import annotations

import importlib
import queue
import shlex
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeVar

from asterism.errors import InputError, LockedError, missing, one_line
from asterism.experiments.data import Dataset
from asterism.experiments.jobs import Job, Monitor, planned_epochs
from asterism.experiments.parallel import Work
from asterism.experiments.training import Watch
from asterism.storage.run_folder import CONFIG, alone_in, refuse_others

T = TypeVar("T")

TOPIC = "asterism"
ANSWER_SECONDS = 10
POLL_SECONDS = 0.1
WAIT_SECONDS = 1.0

_one_at_a_time = threading.Lock()
"""Of a worker with several threads: torch's settings and random numbers are the process's."""


def patiently(work: Work, job: Job, watch: Watch) -> None:
    """The job, begun or continued; once it is free, where another process is at work in it.

    work   what is done with a job
    job    the job
    watch  called with the record of each epoch
    """
    while True:
        try:
            work(job, True, watch)
            return
        except LockedError:
            time.sleep(WAIT_SECONDS)


def alone(out: Path, write: Callable[[], T]) -> T:
    """What a function gives while no other process is in the folder, for whose end it waits."""
    while True:
        try:
            with alone_in(out):
                return write()
        except LockedError:
            time.sleep(POLL_SECONDS)


def check_free(jobs: Sequence[Job], data: Dataset, out: Path, resume: bool) -> None:
    """The refusal of a job in a folder that is in use, before any job is sent away.

    jobs    to be done
    data    that they are trained on
    out     the folder of all jobs
    resume  whether they may be continued
    """
    for job in jobs:
        refuse_others(out / job.name / CONFIG, job.config(data), resume)


def on_cluster(
    jobs: Sequence[Job], work: Work, *, scheduler: str, monitor: Monitor
) -> Iterator[Job]:
    """Each job as it is finished; the error of the first that fails ends the wait for the others.

    jobs       in the order in which they are sent
    work       what a worker does with a job; see `parallel.in_processes`
    scheduler  the address of Dask's
    monitor    a display of progress
    """
    with ExitStack() as stack:
        client = stack.enter_context(closing(_connect(scheduler)))
        records: queue.Queue[Any] = queue.Queue()
        client.subscribe_topic(TOPIC, lambda event: records.put(event[1]))
        displays = {job.name: stack.enter_context(ExitStack()) for job in jobs}
        watches = {
            job.name: displays[job.name].enter_context(monitor(job, planned_epochs(job)))
            for job in jobs
        }
        futures = {client.submit(_do, job, work, pure=False, key=_key(job)): job for job in jobs}
        while futures:
            _show(records, watches)
            for future in [each for each in futures if each.done()]:
                job = futures.pop(future)
                _check(future, job)
                _show(records, watches)
                displays[job.name].close()
                yield job
            time.sleep(POLL_SECONDS)


def _key(job: Job) -> str:
    """By name and time: a finished task of the same name would be remembered as the answer."""
    return f"{job.name}-{time.time_ns()}"


def _connect(scheduler: str) -> Any:
    try:
        dask: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise missing("--scheduler needs distributed", "dask") from error
    start = "`dask worker ADDRESS --nthreads 1`"
    try:
        client = dask.Client(scheduler, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {scheduler} ({one_line(error)}): start one with"
            f" `dask scheduler`, and workers with {start}"
        ) from error
    if not client.scheduler_info()["workers"]:
        warnings.warn(f"{scheduler} has no workers yet: start some with {start}", stacklevel=2)
    return client


def _do(job: Job, work: Work) -> None:
    """On a worker. Records go the way of Dask's events."""
    worker = importlib.import_module("distributed").get_worker()

    def watch(record: Any) -> None:
        worker.log_event(TOPIC, {"job": job.name, "record": record})

    with _one_at_a_time:
        patiently(work, job, watch)


def _show(records: queue.Queue[Any], watches: dict[str, Watch]) -> None:
    while not records.empty():
        event = records.get()
        if event["job"] in watches:
            watches[event["job"]](event["record"])


def _check(future: Any, job: Job) -> None:
    """The error of a job, in one line."""
    if future.status in ("lost", "cancelled"):
        raise InputError(f"{job.name} was lost with its scheduler: start one, and add --resume")
    error = future.exception()
    if isinstance(error, InputError):
        raise InputError(f"{job.name}: {error}") from error
    if type(error).__name__ == "KilledWorker":
        raise InputError(
            f"every worker that was given {job.name} died: look at their logs, for want of memory"
            " above all, and add --resume"
        )
    if error is not None:
        raise InputError(f"{job.name}: {one_line(error)}") from error


# ---------------------------------------------------------------------- Slurm

SLURM = """\
#!/bin/bash
#SBATCH --job-name=asterism
#SBATCH --array=0-{last}
#SBATCH --cpus-per-task={threads}
#SBATCH --requeue
#SBATCH --output=asterism-%A-%a.log
# Submit with `sbatch`. A task that is killed is queued again and continues; a row waits for the
# dense network of its seed, which the first to need it trains. {out}/table.md has what is done.
mkdir -p {out}
jobs=({jobs})
exec {command} --only "${{jobs[$SLURM_ARRAY_TASK_ID]}}"
"""


def slurm_script(names: Sequence[str], command: Sequence[str], *, out: Path, threads: int) -> str:
    """A script for sbatch: an array with one task for each job.

    names    of the jobs
    command  of the whole reproduction, with --resume
    out      the folder of all jobs
    threads  of each job
    """
    line = shlex.join(command)
    return SLURM.format(
        last=len(names) - 1,
        threads=threads,
        out=shlex.quote(str(out)),
        jobs=" ".join(map(shlex.quote, names)),
        command=line,
    )


def run_only(name: str, jobs: Sequence[Job], train: Work, monitor: Monitor) -> Job:
    """The job of this name, done after the dense network of its seed, if it starts from there.

    name     of the job
    jobs     all of the reproduction
    train    trains one
    monitor  a display of progress
    """
    by_name = {job.name: job for job in jobs}
    if name not in by_name:
        raise InputError(f"no job is called {name!r}: choose from {', '.join(by_name)}")
    chosen = by_name[name]
    needed = [] if chosen.method.phases[0].from_scratch else [f"dense-{chosen.seed}"]
    for each in [*needed, name]:
        job = by_name[each]
        with monitor(job, planned_epochs(job)) as watch:
            patiently(train, job, watch)
    return chosen
