"""How long a reproduction takes on this machine, from a little training that is timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import torch

from asterism.experiments.data import Dataset, Split
from asterism.experiments.jobs import Job, fast_forward, make_model, planned_passes
from asterism.experiments.methods import Dense, Polish
from asterism.experiments.methods.method import wrap
from asterism.experiments.training import train
from asterism.graph.compaction import compact

BATCHES = 6
SPARSE = 0.015
"""The density at which live weights are timed: about that of the rows."""

Pace = Callable[[Job, bool, int], float]


def expected_seconds(
    todo: Sequence[Job],
    data: Dataset,
    out: Path,
    *,
    workers: int = 1,
    pace: Pace | None = None,
) -> float:
    """The time of all jobs that the folder does not hold yet.

    todo     the jobs; dense networks are trained one by one, before the others
    data     what they are trained on
    out      the folder of all runs
    workers  jobs at a time, but for the dense ones
    pace     seconds of a pass over the images: for a job, whether it is on live weights, and how
             many run at a time; measured for None
    """
    missing = [job for job in todo if not (out / job.name / "result.json").exists()]
    known: dict[tuple[int, bool, int], float] = {}

    def seconds(job: Job, beside: int) -> float:
        total = 0.0
        for live, passes in enumerate(planned_passes(job)):
            kind = job.threads, bool(live), beside
            if passes and kind not in known:
                known[kind] = pace(job, *kind[1:]) if pace else timed_pass(job, data, *kind[1:])
            total += passes * known.get(kind, 0.0)
        return total

    dense = sum(seconds(job, 1) for job in missing if job.key == "dense")
    others = [0.0, *(seconds(job, workers) for job in missing if job.key != "dense")]
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


def timed_pass(job: Job, data: Dataset, live: bool, beside: int) -> float:
    """Seconds for training on all images once, with what is measured after it.

    A few batches are trained, `beside` times at once, as they will share the machine's caches.

    job     its network, batch size and threads
    data    whose first images are taken
    live    on the few weights of a sparse network, or on all of a dense one
    beside  jobs at a time
    """
    images = BATCHES * job.batch_size
    share = images / len(data.train.labels)
    few = replace(
        data,
        train=_first(data.train, images),
        validation=_first(data.validation, max(1, round(share * len(data.validation.labels)))),
    )
    before, ready = torch.get_num_threads(), Barrier(beside)
    with torch.random.fork_rng(), ThreadPoolExecutor(beside) as pool:
        # Made one after the other: torch traces a network at a time.
        trials = [_trial(job, few, live) for _ in range(beside)]
        running = [pool.submit(_timed, trial, few, job, ready) for trial in trials]
        seconds = max(each.result() for each in running)
    torch.set_num_threads(before)
    return seconds / share


Trial = Callable[[Dataset], object]
"""Trains a network of its own on the data, once."""


def _trial(job: Job, data: Dataset, live: bool) -> Trial:
    network = make_model(job)
    if live:
        wrap(network, 0.0).prune(density=SPARSE, score="lamp")
        network = compact(network).model
    method = Polish(retrain_epochs=1) if live else Dense(epochs=1)
    setup, size = method.setup(network), job.batch_size
    forward = fast_forward(network, data, setup.optimizer, pays=live)
    return lambda part: train(
        network, setup.optimizer, setup.stages, part, batch_size=size, forward=forward
    )


def _timed(trial: Trial, data: Dataset, job: Job, ready: Barrier) -> float:
    torch.set_num_threads(job.threads)  # of the thread that this is
    torch.set_flush_denormal(True)
    try:
        trial(replace(data, train=_first(data.train, job.batch_size)))  # the first batch is slower
    except BaseException:
        ready.abort()  # nobody shall wait for this one
        raise
    ready.wait()
    started = time.perf_counter()
    trial(data)
    return time.perf_counter() - started


def _first(split: Split, count: int) -> Split:
    return Split(split.images[:count], split.labels[:count])
