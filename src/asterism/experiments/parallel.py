"""Several jobs at once, each in a process of its own.

A process that ends before its job does, as the system's memory killer ends some, is started once
more and resumes the job: its folder has all but the last epoch.
"""

from __future__ import annotations

import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from asterism.errors import InputError, one_line
from asterism.experiments.jobs import Job, Monitor, planned_epochs
from asterism.experiments.training import Watch

Work = Callable[[Job, bool, Watch], Any]
ATTEMPTS = 2
FINISHED, ENDED = None, False  # beside records, which are dicts, and errors, which are texts


@dataclass
class Worker:
    """A process, and the job that it is at: which attempt, and what shows its progress."""

    process: BaseProcess
    job: Job
    attempt: int
    display: ExitStack
    watch: Watch


def in_processes(
    jobs: Sequence[Job], work: Work, *, workers: int, resume: bool, monitor: Monitor
) -> Iterator[Job]:
    """Each job as it is finished; the error of the first that fails ends all others.

    jobs     in the order in which they are started
    work     what a process does with the job, whether to resume it, and what to call after each
             epoch; it is sent to the process, so a function of a module or a partial of one
    workers  processes at a time
    resume   whether to continue what is in the jobs' folders
    monitor  a display of progress
    """
    waiting = deque((job, 1) for job in jobs)
    idle: list[tuple[Connection, BaseProcess]] = []
    busy: dict[Connection, Worker] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                job, attempt = waiting.popleft()
                connection, process = idle.pop() if idle else _new_process(work)
                connection.send((job, resume or attempt > 1))
                display = ExitStack()
                watch = display.enter_context(monitor(job, planned_epochs(job)))
                busy[connection] = Worker(process, job, attempt, display, watch)
            ready: list[Any] = wait(list(busy))
            for connection in ready:
                worker = busy[connection]
                message = _receive(connection)
                if not isinstance(message, str | bool | None):
                    worker.watch(message)
                    continue
                del busy[connection]
                worker.display.close()
                if message is FINISHED:
                    idle.append((connection, worker.process))
                    yield worker.job
                elif message is ENDED:
                    waiting.appendleft(_again(worker))
                else:
                    raise InputError(message)
    finally:
        for worker in busy.values():
            worker.process.terminate()
            worker.display.close()
        for connection, _ in idle:
            connection.close()


def _new_process(work: Work) -> tuple[Connection, BaseProcess]:
    context = get_context("spawn")  # a copy of this process would inherit torch's threads
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
    process.start()
    theirs.close()  # with the process its end is gone, and reading from ours tells it
    return ours, process


def _receive(connection: Connection) -> Any:
    """A message; ENDED where the process is gone."""
    try:
        return connection.recv()
    except (EOFError, ConnectionResetError):
        return ENDED


def _again(worker: Worker) -> tuple[Job, int]:
    if worker.attempt >= ATTEMPTS:
        worker.process.join()
        raise InputError(
            f"the process of {worker.job.name} was ended from outside, {ATTEMPTS} times, with code"
            f" {worker.process.exitcode}: use fewer --jobs if memory is short, and --resume"
        )
    return worker.job, worker.attempt + 1


def _serve(connection: Connection, work: Work) -> None:
    """The process: of each job the epochs as they come, then FINISHED or the text of an error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process is told, and ends this one
    while True:
        try:
            job, resume = connection.recv()
        except EOFError:
            return
        try:
            work(job, resume, connection.send)
        except InputError as error:
            connection.send(f"{job.name}: {error}")
        except Exception as error:
            traceback.print_exc()
            connection.send(f"{job.name}: {one_line(error)}")
        else:
            connection.send(FINISHED)
