"""The time that a reproduction will take, said before it begins."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from asterism.experiments.budgets import GREEDY
from asterism.experiments.budgets import find as budget
from asterism.experiments.data import load
from asterism.experiments.duration import expected_seconds, timed_pass
from asterism.experiments.jobs import Job, planned_epochs
from asterism.experiments.reproduce import jobs


def a_second(_: Job, live: bool, beside: int) -> float:
    return 1.0


def test_it_is_the_passes_of_all_jobs_over_the_workers(tmp_path: Path) -> None:
    data, todo = load("digits"), jobs(budget("smoke"), None, seeds=1)
    dense, *others = (planned_epochs(job) for job in todo)
    expected = partial(expected_seconds, todo, data, tmp_path, pace=a_second)
    assert expected(workers=1) == dense + sum(others)
    assert expected(workers=2) == dense + sum(others) / 2
    assert expected(workers=99) == dense + max(others)  # the longest job is one worker's


def test_what_is_finished_takes_no_time(tmp_path: Path) -> None:
    todo = jobs(budget("smoke"), None, seeds=1)
    for job in todo:
        (tmp_path / job.name).mkdir()
        (tmp_path / job.name / "result.json").write_text("{}")
    assert expected_seconds(todo, load("digits"), tmp_path) == 0


def test_live_weights_half_epochs_and_neighbours_have_their_own_pace(tmp_path: Path) -> None:
    todo = [job for job in jobs(budget("quick"), None, seeds=1) if job.key in ("dense", GREEDY)]
    (row,) = [job for job in jobs(budget("quick"), None, seeds=1) if job.key == "reweighted_l1"]

    def pace(_: Job, live: bool, beside: int) -> float:
        return (1.0 if live else 100.0) * (10_000 if beside == 2 else 1)

    seconds = expected_seconds([*todo, row], load("digits"), tmp_path, workers=2, pace=pace)
    dense, of_row, figure = 4 * 100, (2 * 100 + 6) * 10_000, 8 * 0.5 * 100 * 10_000
    assert seconds == dense + max(of_row, figure, (of_row + figure) / 2)


@pytest.mark.parametrize("live", [False, True])
def test_timing_leaves_random_numbers_and_threads_alone(live: bool) -> None:
    (job, *_) = jobs(budget("smoke"), None, seeds=1)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    assert timed_pass(replace(job, threads=1), load("digits"), live, beside=2) > 0
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
