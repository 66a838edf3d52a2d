"""The progress of a long run: a bar and a table of layers for a person, plain lines for a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from math import prod
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from asterism.cli.layer_table import Board, LayerStatus, board
from asterism.cli.voice import is_quiet, say
from asterism.experiments.budgets import Budget
from asterism.experiments.jobs import Job, Monitor, planned_epochs
from asterism.experiments.lenets import weight_shapes
from asterism.experiments.reproduce import jobs
from asterism.experiments.results import EpochRecord
from asterism.experiments.training import Watch
from asterism.integrations.tensorboard import TensorBoard


@contextmanager
def monitoring(budget: Budget, methods: Sequence[str] | None, seeds: int) -> Iterator[Monitor]:
    """A monitor for all jobs of a reproduction, on standard error.

    budget, methods, seeds  as for `reproduce`: they tell how many epochs there will be
    """
    console = Console(stderr=True)
    if is_quiet() or not console.is_terminal:
        yield print_lines
        return
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs"),
        TimeRemainingColumn(),
    ]
    bar = Progress(*columns, console=console)
    with board(bar, console) as shown:
        yield Bar(shown, sum(planned_epochs(job) for job in jobs(budget, methods, seeds)))


@contextmanager
def print_lines(job: Job, epochs: int) -> Iterator[Watch]:
    """A line per epoch; none for a command that was told to be quiet."""

    def watch(record: EpochRecord) -> None:
        say(f"{job.name}: {describe_epoch(record, epochs)}")

    yield watch


class Bar:
    """One bar over all epochs of all jobs; a line of its own for each finished job."""

    def __init__(self, shown: Board, total: int) -> None:
        self.shown, self.bar = shown, shown.bar
        self.task = self.bar.add_task("", total=total)
        self.done: dict[str, int] = {}  # epochs, by job

    def __call__(self, job: Job, epochs: int) -> AbstractContextManager[Watch]:
        return self._watch(job, epochs)

    @contextmanager
    def _watch(self, job: Job, epochs: int) -> Iterator[Watch]:
        last: EpochRecord | None = None

        def watch(record: EpochRecord) -> None:
            nonlocal last
            last = record
            self._advance(job, record["epoch"])
            sizes = {name: prod(shape) for name, shape in weight_shapes(job.model).items()}
            rows = [LayerStatus(name, kept, sizes[name]) for name, kept in record["layers"].items()]
            self.shown.show(rows, describe_epoch(record, epochs))

        yield watch
        self._advance(job, epochs)
        if last is not None:
            self.bar.console.print(f"{job.name}: {describe_epoch(last, epochs)}")

    def _advance(self, job: Job, epochs: int) -> None:
        self.done[job.name] = epochs
        done = sum(self.done.values())
        self.bar.update(self.task, completed=done, description=job.name)


def describe_epoch(record: EpochRecord, epochs: int) -> str:
    """An epoch on one line."""
    return (
        f"{record['stage']}, epoch {record['epoch']} of {epochs},"
        f" validation error {record['validation_error_percent']:.2f} %,"
        f" {record['density_percent']:.2f} % of the weights"
    )


def also(folder: Path, monitor: Monitor) -> Monitor:
    """A monitor that writes each job to a folder of its own, beside what it does anyway."""

    @contextmanager
    def both(job: Job, epochs: int) -> Iterator[Watch]:
        with monitor(job, epochs) as watch, closing(TensorBoard(folder / job.name)) as board:
            yield lambda record: _call([watch, board], record)

    return both


def _call(watches: list[Watch], record: EpochRecord) -> None:
    for watch in watches:
        watch(record)
