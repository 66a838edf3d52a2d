"""The time that a reproduction will take, said before it begins."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from asterism.experiments.budgets import budget
from asterism.experiments.data.mnist import load
from asterism.experiments.duration import expected_seconds, timed_step
from asterism.experiments.jobs import Job, planned_epochs
from asterism.experiments.reproduce import jobs


def a_second(_: Job) -> float:
    return 1.0


def test_it_is_the_steps_of_all_jobs_over_the_workers(tmp_path: Path) -> None:
    data, todo = load("digits"), jobs(budget("smoke"), None, seeds=1)
    steps = -(-len(data.train.labels) // todo[0].batch_size)
    dense, *others = (steps * planned_epochs(job) for job in todo)
    expected = partial(expected_seconds, todo, data, tmp_path, step_seconds=a_second)
    assert expected(workers=1) == dense + sum(others)
    assert expected(workers=2) == dense + sum(others) / 2
    assert expected(workers=99) == dense + max(others)  # the longest job is one worker's


def test_what_is_finished_takes_no_time(tmp_path: Path) -> None:
    todo = jobs(budget("smoke"), None, seeds=1)
    for job in todo:
        (tmp_path / job.name).mkdir()
        (tmp_path / job.name / "result.json").write_text("{}")
    assert expected_seconds(todo, load("digits"), tmp_path) == 0


def test_timing_a_step_leaves_random_numbers_and_threads_alone() -> None:
    (job, *_) = jobs(budget("smoke"), None, seeds=1)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    assert timed_step(replace(job, threads=1)) > 0
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
