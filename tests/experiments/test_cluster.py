"""Jobs on many machines: each is done once, whoever dies."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asterism.errors import InputError
from asterism.experiments.cluster import alone, check_free, on_cluster, run_only, slurm_script
from asterism.experiments.data import Dataset
from asterism.experiments.jobs import Job
from asterism.experiments.methods import Dense, GradualMagnitude, RiggedLottery
from asterism.experiments.training import Watch
from asterism.storage.run_folder import alone_in
from support.command_line import PROGRAM, asterism
from support.work import RECORD, die_at_first, fail_or_sleep, leave_a_note

SMOKE = ["--budget", "smoke", "--data", "digits", "--methods", "magnitude,reweighted_l1"]


def jobs(count: int) -> list[Job]:
    return [Job("dense", Dense(epochs=1), seed, "lenet300", threads=1) for seed in range(count)]


@contextmanager
def unseen(job: Job, epochs: int) -> Iterator[Watch]:
    yield lambda record: None


# ---------------------------------------------------------------------- one job of an array


def test_a_row_comes_after_the_dense_network_of_its_seed() -> None:
    rows = [Job("magnitude", GradualMagnitude(), seed, "lenet300") for seed in range(2)]
    rows += [Job("rigl", RiggedLottery(), 1, "lenet300")]
    done: list[tuple[str, bool]] = []

    def train(job: Job, resume: bool, watch: Watch) -> None:
        done.append((job.name, resume))

    chosen = run_only("magnitude-1", [*jobs(2), *rows], train, unseen)
    assert chosen is rows[1]
    assert done == [("dense-1", True), ("magnitude-1", True)]
    run_only("dense-0", [*jobs(2), *rows], train, unseen)
    run_only("rigl-1", [*jobs(2), *rows], train, unseen)  # which starts from random weights
    assert done[2:] == [("dense-0", True), ("rigl-1", True)]
    with pytest.raises(InputError, match="no job is called 'lwc-0': choose from dense-0, dense-1"):
        run_only("lwc-0", jobs(2), train, unseen)


def test_a_job_that_another_process_is_at_is_waited_for(tmp_path: Path) -> None:
    """Then its result is read: nothing is done twice."""
    held, events = threading.Event(), []

    def hold() -> None:
        with alone_in(tmp_path):
            held.set()
            time.sleep(0.3)
            events.append("the other one has ended")

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    alone(tmp_path, lambda: events.append("ours"))
    other.join()
    assert events == ["the other one has ended", "ours"]


def test_a_folder_in_use_is_refused_before_anything_is_sent(
    tmp_path: Path, digits: Dataset
) -> None:
    (job,) = jobs(1)
    check_free([job], digits, tmp_path, resume=False)
    (tmp_path / job.name).mkdir()
    (tmp_path / job.name / "config.json").write_text(json.dumps(job.config(digits)))
    check_free([job], digits, tmp_path, resume=True)
    with pytest.raises(InputError, match="holds a run already: add --resume"):
        check_free([job], digits, tmp_path, resume=False)


def test_the_slurm_script_has_one_task_for_each_row_and_seed(tmp_path: Path) -> None:
    out = tmp_path / "two words"
    done = asterism(
        "reproduce", *SMOKE, "--seeds", 2, "--threads", 1, "--out", out, "--print-slurm"
    )
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --array=0-5\n" in done.stdout
    names = re.search(r"jobs=\((.*)\)", done.stdout)
    assert names is not None
    seen = []
    # A shell that has only to say what it would run.
    script = done.stdout.replace("exec asterism", "printf '%s\\n'")
    for number in range(6):
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(number)}
        ran = subprocess.run(
            ["bash"], input=script, capture_output=True, text=True, env=environment
        )
        words = ran.stdout.splitlines()
        assert words[words.index("--out") + 1] == str(out)
        assert "--resume" in words
        seen.append(words[words.index("--only") + 1])
    assert seen == names[1].split()
    assert set(seen) == {
        f"{k}-{s}" for k in ("dense", "magnitude", "reweighted_l1") for s in (0, 1)
    }
    assert "{" not in slurm_script(["a"], ["b"], out=out, threads=1).replace("${", "")


@pytest.mark.slow
def test_tasks_of_an_array_train_the_dense_network_once_and_fill_one_table(tmp_path: Path) -> None:
    command = [*PROGRAM, "reproduce", *SMOKE, "--threads", "1", "--out", str(tmp_path), "--resume"]
    names = ["reweighted_l1-0", "magnitude-0"]
    tasks = [
        subprocess.Popen([*command, "--only", name], stderr=subprocess.PIPE, text=True)
        for name in names
    ]
    output = [task.communicate(timeout=300)[1] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], output
    trained = [set(re.findall(r"^(\S+-0): .* epoch 1 of", each, re.MULTILINE)) for each in output]
    assert sorted(map(len, trained)) == [1, 2], "both or neither trained the dense network"
    rows = json.loads((tmp_path / "results.json").read_text())
    assert {row["method"] for row in rows} == {"dense", "reweighted_l1", "magnitude"}


# ---------------------------------------------------------------------- Dask


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes, each started again by its nanny when it dies."""
    distributed = pytest.importorskip("distributed")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster


dask = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class TestDask:
    pytestmark = dask

    def run(self, cluster: Any, count: int, work: Any) -> list[str]:
        address = cluster.scheduler_address
        return [
            job.name for job in on_cluster(jobs(count), work, scheduler=address, monitor=unseen)
        ]

    def test_every_job_runs_once_on_two_workers(self, cluster: Any, tmp_path: Path) -> None:
        done = self.run(cluster, 6, partial(leave_a_note, folder=tmp_path))
        assert sorted(done) == [f"dense-{seed}" for seed in range(6)]
        notes = [(tmp_path / name).read_text().split() for name in done]
        assert {note[2] for note in notes} == {"False"}, "a job ran twice"
        assert len({note[0] for note in notes}) == 2

    def test_progress_is_told(self, cluster: Any, tmp_path: Path) -> None:
        seen: list[Any] = []

        @contextmanager
        def watched(job: Job, epochs: int) -> Iterator[Watch]:
            yield seen.append

        work = partial(leave_a_note, folder=tmp_path)
        address = cluster.scheduler_address
        list(on_cluster(jobs(1), work, scheduler=address, monitor=watched))
        assert seen == [RECORD]

    def test_a_job_whose_worker_dies_is_taken_by_another(
        self, cluster: Any, tmp_path: Path
    ) -> None:
        done = self.run(cluster, 3, partial(die_at_first, folder=tmp_path, times=(1, 0, 0)))
        assert sorted(done) == ["dense-0", "dense-1", "dense-2"]
        tries = sorted(path.name for path in tmp_path.iterdir())
        assert tries == ["dense-0.0", "dense-0.1", "dense-1.0", "dense-2.0"]

    def test_an_error_of_a_job_is_one_line(self, cluster: Any, tmp_path: Path) -> None:
        work = partial(fail_or_sleep, folder=tmp_path)
        with pytest.raises(InputError, match="dense-1: the disk is full"):
            self.run(cluster, 2, work)
        for path in tmp_path.glob("pid"):  # a worker that would sleep on
            os.kill(int(path.read_text()), signal.SIGKILL)

    def test_reproduce_gives_on_the_cluster_what_it_gives_here(
        self, cluster: Any, tmp_path: Path
    ) -> None:
        here, there = tmp_path / "here", tmp_path / "there"
        for out, options in (
            (here, ["--jobs", 1]),
            (there, ["--scheduler", cluster.scheduler_address]),
        ):
            done = asterism("reproduce", *SMOKE, "--threads", 1, "--out", out, *options)
            assert done.returncode == 0, done.stderr
        for name in ("dense-0", "magnitude-0", "reweighted_l1-0"):
            files = [out / name / "model.safetensors" for out in (here, there)]
            assert files[0].read_bytes() == files[1].read_bytes(), name
        assert "epoch 1 of" in done.stderr

    def test_no_scheduler_is_one_line(self) -> None:
        with pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
            list(on_cluster(jobs(1), print, scheduler="tcp://127.0.0.1:9", monitor=unseen))
