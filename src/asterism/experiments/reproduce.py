"""The paper's experiments: every row of Table 1 and both halves of Figure 1, each a job of its own.

Dense training is done once per seed and shared by all methods of that seed. What is finished is
written at once, so that an interrupted reproduction loses at most an epoch. The results and the
table show all that the folder holds, whichever call it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from asterism.errors import InputError
from asterism.experiments.budgets import GREEDY, NOISE, Budget
from asterism.experiments.data.mnist import Dataset, Split
from asterism.experiments.figure import figure1
from asterism.experiments.jobs import Job, load_model, run
from asterism.experiments.lenets import MODELS
from asterism.experiments.results import History, RunResult
from asterism.experiments.table import table
from asterism.experiments.training import Watch
from asterism.storage.atomic_files import read_json, write_atomically, write_json
from asterism.storage.config import differences

FIGURE = (NOISE, GREEDY)


class Monitor(Protocol):
    """A display of progress: called with each job, it gives what to call after each epoch."""

    def __call__(self, job: Job, epochs: int) -> AbstractContextManager[Watch]: ...


def reproduce(
    budget: Budget,
    data: Dataset,
    out: Path,
    *,
    methods: Sequence[str] | None = None,
    seeds: int = 1,
    resume: bool = False,
    caption: str = "",
    monitor: Monitor,
) -> list[RunResult]:
    """Runs what is asked for and writes results.json, table.md and, where it can, the figure.

    budget   the methods and their settings
    data     what they are trained and tested on
    out      the folder of all runs
    methods  keys of the budget; the dense network is always among them. None for all
    seeds    how many, from 0 on
    resume   whether to continue runs that are in the folder; finished ones are read
    caption  stands below the table
    monitor  a display of progress
    """
    data = limit(data, budget.train_images)
    results: list[RunResult] = []
    for job in jobs(budget, methods, seeds):
        model = make_model(job)
        dense = out / f"dense-{job.seed}" / "model.safetensors"
        start = None if job.key == "dense" else load_model(dense)
        with monitor(job, planned_epochs(job)) as watch:
            run(job, out / job.name, model, data, start=start, resume=resume, watch=watch)
        results = finished_rows(budget, data, out)
        write_json(out / "results.json", results)
        write_atomically(out / "table.md", (table(results, caption=caption) + "\n").encode())
        if job.key in FIGURE and all((out / f"{key}-0/result.json").exists() for key in FIGURE):
            figure1(curve(out, NOISE), curve(out, GREEDY), out)
    return results


def jobs(budget: Budget, methods: Sequence[str] | None, seeds: int) -> list[Job]:
    """Seed by seed, the dense network first; for the figure one seed will do."""
    return [
        make_job(budget, key, seed)
        for seed in range(seeds)
        for key in select(budget, methods)
        if seed == 0 or key not in FIGURE
    ]


def make_job(budget: Budget, key: str, seed: int) -> Job:
    """The method `key` of a budget on one seed."""
    return Job(key, budget.methods[key], seed, budget.model, budget.batch_size)


def finished_rows(budget: Budget, data: Dataset, out: Path) -> list[RunResult]:
    """The records of the table's rows in a folder, as far as they have this budget's settings."""
    rows = []
    for key in (key for key in budget.methods if key not in FIGURE):
        for path in sorted(out.glob(f"{key}-*/result.json")):
            record = read_json(path)
            config = make_job(budget, key, record["seed"]).config(data)
            if not differences(record["config"], config):
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


def limit(data: Dataset, images: int | None) -> Dataset:
    """The dataset with the first training images only; all of them for None."""
    if images is None or images >= len(data.train.labels):
        return data
    train = Split(data.train.images[:images], data.train.labels[:images])
    return replace(data, train=train)


def make_model(job: Job) -> nn.Module:
    """The job's network as its seed initialises it; channels-last is the faster layout on a CPU."""
    torch.manual_seed(job.seed)
    model = MODELS[job.model]()
    for param in model.parameters():
        if param.ndim == 4:
            param.data = param.data.contiguous(memory_format=torch.channels_last)
    return model


def planned_epochs(job: Job) -> int:
    """The epochs of all phases, if none is skipped."""
    return sum(phase.setup(make_model(job)).epochs for phase in job.method.phases)


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
