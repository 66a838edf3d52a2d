"""The paper's experiments: every row of Table 1 and both halves of Figure 1, each a job of its own.

Dense training is done once per seed and shared by all methods of that seed. What is finished is
written at once, so that an interrupted reproduction loses at most an epoch. The results and the
table show all that the folder holds, whichever call it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from asterism.errors import InputError
from asterism.experiments.budgets import GREEDY, NOISE, Budget
from asterism.experiments.cluster import alone, check_free, on_cluster, run_only
from asterism.experiments.data import Dataset, Split, load
from asterism.experiments.figure import figure1
from asterism.experiments.jobs import (
    Job,
    Monitor,
    load_model,
    make_model,
    planned_epochs,
    run,
)
from asterism.experiments.networks import INPUT_SHAPES, NETWORK_NAMES
from asterism.experiments.parallel import in_processes
from asterism.experiments.results import History, RunResult
from asterism.experiments.table import table
from asterism.experiments.training import Watch
from asterism.storage.atomic_files import read_json, write_atomically, write_json
from asterism.storage.config import differences

FIGURE = (NOISE, GREEDY)


def reproduce(
    budget: Budget,
    data: Dataset,
    out: Path,
    *,
    methods: Sequence[str] | None = None,
    seeds: int = 1,
    resume: bool = False,
    caption: str = "",
    workers: int = 1,
    threads: int | None = None,
    scheduler: str | None = None,
    only: str | None = None,
    monitor: Monitor,
) -> list[RunResult]:
    """Runs what is asked for and writes results.json, table.md and, where it can, the figure.

    budget     the methods and their settings
    data       what they are trained and tested on
    out        the folder of all runs
    methods    keys of the budget; the dense network is always among them. None for all
    seeds      how many, from 0 on
    resume     whether to continue runs that are in the folder; finished ones are read
    caption    stands below the table
    workers    jobs at a time, each in a process of its own; 1 for all in this one. Processes load
               the data anew, by its name
    threads    of each job but dense training, which is alone and has this process's; None for those
    scheduler  the address of a Dask scheduler, whose workers do all jobs
    only       the name of one job, which alone is done, after the dense one that it needs
    monitor    a display of progress
    """
    data = data_of(budget, data)
    todo = jobs(budget, methods, seeds, threads)
    if threads is not None and (scheduler or only):  # machines have different numbers of cores
        todo = [replace(job, threads=threads) for job in todo]
    dense = [job for job in todo if job.key == "dense"]
    others = [job for job in todo if job.key != "dense"]
    here = partial(_one_by_one, data=data, out=out, resume=resume, monitor=monitor)
    elsewhere = partial(_train_elsewhere, data=data.name, images=budget.train_images, out=out)
    rest = (
        here(others)
        if workers == 1
        else in_processes(others, elsewhere, workers=workers, resume=resume, monitor=monitor)
    )
    first = here(dense)
    write = partial(_write_results, budget, data, out, caption)
    if only is not None:
        job = run_only(only, todo, partial(_train, data=data, out=out), monitor)
        return alone(out, partial(write, job))
    if scheduler is not None:
        check_free(todo, data, out, resume)
        remote = partial(elsewhere, out=out.resolve())
        first, rest = (
            on_cluster(each, remote, scheduler=scheduler, monitor=monitor)
            for each in (dense, others)
        )
    results: list[RunResult] = []
    for job in chain(first, rest):
        results = write(job)
    return results


def _write_results(
    budget: Budget, data: Dataset, out: Path, caption: str, job: Job
) -> list[RunResult]:
    """results.json, table.md and, after the job that completes it, the figure."""
    results = finished_rows(budget, data, out)
    write_json(out / "results.json", results)
    write_atomically(out / "table.md", (table(results, caption=caption) + "\n").encode())
    if job.key in FIGURE and all((out / f"{key}-0/result.json").exists() for key in FIGURE):
        figure1(curve(out, NOISE), curve(out, GREEDY), out)
    return results


def _sizes(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


def _one_by_one(
    todo: Sequence[Job], *, data: Dataset, out: Path, resume: bool, monitor: Monitor
) -> Iterator[Job]:
    for job in todo:
        with monitor(job, planned_epochs(job)) as watch:
            _train(job, resume, watch, data=data, out=out)
        yield job


def _train(job: Job, resume: bool, watch: Watch, *, data: Dataset, out: Path) -> None:
    dense = out / f"dense-{job.seed}" / "model.safetensors"
    start = None if job.method.phases[0].from_scratch else load_model(dense)
    run(job, out / job.name, make_model(job), data, start=start, resume=resume, watch=watch)


def _train_elsewhere(
    job: Job, resume: bool, watch: Watch, *, data: str, images: int | None, out: Path
) -> None:
    torch.set_flush_denormal(True)  # weights that sink towards zero would slow the CPU down
    _train(job, resume, watch, data=limit(load(data), images), out=out)


def jobs(
    budget: Budget, methods: Sequence[str] | None, seeds: int, threads: int | None = None
) -> list[Job]:
    """Seed by seed, the dense network first; for the figure one seed will do.

    budget   the methods and their settings
    methods  keys of the budget, None for all
    seeds    how many, from 0 on
    threads  of each job but the dense ones; None for this process's
    """
    return [
        make_job(budget, key, seed, None if key == "dense" else threads)
        for seed in range(seeds)
        for key in select(budget, methods)
        if seed == 0 or key not in FIGURE
    ]


def make_job(budget: Budget, key: str, seed: int, threads: int | None = None) -> Job:
    """The method `key` of a budget on one seed, with `threads` or this process's."""
    job = Job(key, budget.methods[key], seed, budget.model, budget.batch_size)
    return job if threads is None else replace(job, threads=threads)


def finished_rows(budget: Budget, data: Dataset, out: Path) -> list[RunResult]:
    """The records of the table's rows in a folder, as far as they have this budget's settings."""
    rows = []
    for key in (key for key in budget.methods if key not in FIGURE):
        for path in sorted(out.glob(f"{key}-*/result.json")):
            record = read_json(path)
            config = make_job(budget, key, record["seed"]).config(data)
            if set(differences(record["config"], config)) <= {"threads"}:
                rows.append(record)
    return rows


def select(budget: Budget, methods: Sequence[str] | None) -> list[str]:
    """The jobs in the order of the budget; the dense network comes first in any case."""
    if methods is None:
        return list(budget.methods)
    for key in methods:
        if key not in budget.methods:
            raise InputError(f"unknown method {key!r}: choose from {', '.join(budget.methods)}")
    return [key for key in budget.methods if key == "dense" or key in methods]


def data_of(budget: Budget, data: Dataset) -> Dataset:
    """The images that a budget trains on; an error for those that its network does not take."""
    found, expected = tuple(data.train.images.shape[1:]), INPUT_SHAPES[budget.model]
    if found != expected:
        raise InputError(
            f"{NETWORK_NAMES[budget.model]} takes images of {_sizes(expected)}, and those of"
            f" {data.name} have {_sizes(found)}: choose another budget or other data"
        )
    return limit(data, budget.train_images)


def limit(data: Dataset, images: int | None) -> Dataset:
    """The dataset with the first training images only; all of them for None."""
    if images is None or images >= len(data.train.labels):
        return data
    train = Split(data.train.images[:images], data.train.labels[:images])
    return replace(data, train=train)


def curve(out: Path, key: str, seed: int = 0) -> History:
    """Error and kurtosis after each re-weighting t, from the dense network at t = 0 on."""
    dense = read_json(out / f"dense-{seed}" / "history.json")[-1:]
    reweighted = [
        record
        for record in read_json(out / f"{key}-{seed}" / "history.json")
        if record["stage"].startswith("reweight")
    ]
    last_of = {record["t"]: record for record in dense + reweighted}
    return list(last_of.values())
