"""How long a reproduction takes on this machine, from a few steps of training that are timed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

import torch
import torch.nn.functional as F

from asterism.experiments.data import Dataset
from asterism.experiments.jobs import Job, make_model, planned_epochs
from asterism.experiments.networks import INPUT_SHAPES

STEPS = 8


def expected_seconds(
    todo: Sequence[Job],
    data: Dataset,
    out: Path,
    *,
    workers: int = 1,
    step_seconds: Callable[[Job], float] | None = None,
) -> float:
    """The time of all jobs that the folder does not hold yet.

    todo          the jobs; dense networks are trained one by one, before the others
    data          what they are trained on
    out           the folder of all runs
    workers       jobs at a time, but for the dense ones
    step_seconds  the time of a step of a job; measured for None
    """
    missing = [job for job in todo if not (out / job.name / "result.json").exists()]
    one_of = {job.threads: job for job in missing}
    a_step = {threads: (step_seconds or timed_step)(job) for threads, job in one_of.items()}
    dense, others = 0.0, [0.0]
    for job in missing:
        steps = planned_epochs(job) * math.ceil(len(data.train.labels) / job.batch_size)
        if job.key == "dense":
            dense += steps * a_step[job.threads]
        else:
            others.append(steps * a_step[job.threads])
    return dense + max(sum(others) / workers, *others)


def in_words(seconds: float) -> str:
    """A time as one would say it.

    >>> in_words(20), in_words(372)
    ('less than a minute', 'about 6 minutes')
    """
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    return f"about {minutes} minute{'s' * (minutes > 1)}"


def timed_step(job: Job) -> float:
    """Forward, backward and step of the job's whole network, the first of a few steps aside."""
    before = torch.get_num_threads()
    torch.set_num_threads(job.threads)
    with torch.random.fork_rng():
        network = make_model(job)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    channels, *size = INPUT_SHAPES[job.model]
    # Channels last, as those of datasets.
    images = torch.zeros(job.batch_size, *size, channels).permute(0, 3, 1, 2)
    labels = torch.zeros(job.batch_size, dtype=torch.long)
    times = []
    for _ in range(STEPS):
        started = time.perf_counter()
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(network(images), labels))
        optimizer.step()
        times.append(time.perf_counter() - started)
    torch.set_num_threads(before)
    return mean(times[1:])
