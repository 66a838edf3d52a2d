"""`torchrun -m asterism sparsify`: ranks are killed, and the search continues on any number."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from support import searching_ranks
from support.command_line import PROGRAM, asterism
from support.paths import environment
from support.ranks import TORCHRUN

HERE = Path(searching_ranks.__file__)
SEARCH = [f"{HERE}:model", "--data", f"{HERE}:slow_loaders", "--max-drop", "2"]
SEARCH += ["--max-epochs", "10", "--epochs-per-cut", "1", "--reweighting", "0.4"]
SEARCH += ["--optimizer", "sgd", "--threads", "1"]
SLOWLY = {"SECONDS_PER_EXAMPLE": "0.003"}


def torchrun(world: int, *arguments: object, **variables: str) -> subprocess.Popen[str]:
    command = [*TORCHRUN, "--nproc-per-node", str(world), "-m", "asterism", "sparsify"]
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(**variables),
    )


def ranks_of(launcher: subprocess.Popen[str]) -> list[int]:
    """The process of each rank, by its number."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    found = {}
    for child in children:
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        rank = next((each[5:] for each in variables if each.startswith(b"RANK=")), None)
        if rank is not None:
            found[int(rank)] = int(child)
    return [found[rank] for rank in sorted(found)]


def wait_for_trial(launcher: subprocess.Popen[str], count: int) -> None:
    """Until as many trials have ended; the next one has begun."""
    assert launcher.stderr is not None
    for line in launcher.stderr:
        count -= line.startswith(("✓", "✗"))
        if not count:
            time.sleep(0.05)
            return
    raise AssertionError("it ended before")


def end(launcher: subprocess.Popen[str]) -> str:
    """What it still prints; all ranks must end within seconds."""
    _, rest = launcher.communicate(timeout=60)
    assert launcher.returncode != 0
    return rest


def result(out: Path) -> tuple[list[Any], dict[str, torch.Tensor]]:
    found = json.loads((out / "result.json").read_text())
    exact = ("trial", "nonzeros", "within_tolerance", "epochs", "note")
    history = [[record[name] for name in exact] for record in found["history"]]
    return history, safetensors.torch.load_file(out / "model.safetensors")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone")
    done = asterism("sparsify", *SEARCH, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_killed_rank_by_rank_and_whole_it_ends_as_one_process(
    undisturbed: Path, tmp_path: Path
) -> None:
    """On two ranks, then three with shards, then two again, and at the end in one process."""
    out = tmp_path / "run"
    arguments = [*SEARCH, "--out", out, "--resume"]
    for world, options, victim in ((2, [], 1), (3, ["--fsdp"], 0), (3, [], 2), (2, [], None)):
        launcher = torchrun(world, *arguments, *options, **SLOWLY)
        wait_for_trial(launcher, 2)
        ranks = ranks_of(launcher)
        assert len(ranks) == world
        for rank in ranks if victim is None else [ranks[victim]]:
            os.kill(rank, signal.SIGKILL)
        rest = end(launcher)
        if victim is not None:
            lines = [line for line in rest.splitlines() if line.startswith("asterism: ")]
            assert len(lines) == 1, rest
            assert "--resume" in lines[0]
            assert victim or lines[0].startswith("asterism: rank 0 is gone, ended from outside: ")
        assert not list(out.glob(".*")), "something was left half-written"
    done = asterism("sparsify", *arguments)
    assert done.returncode == 0, done.stderr
    history, weights = result(out)
    expected, expected_weights = result(undisturbed)
    assert history == expected
    for name, weight in expected_weights.items():
        assert torch.equal(weights[name] != 0, weight != 0), name
        torch.testing.assert_close(weights[name], weight, rtol=1e-7, atol=1e-10)


@pytest.mark.slow
def test_an_error_of_one_rank_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    launcher = torchrun(2, *SEARCH, "--out", tmp_path / "run", FAILING_RANK="1")
    assert launcher.stderr is not None
    next(line for line in launcher.stderr if "making the model" in line)
    lines = [line for line in end(launcher).splitlines() if line.startswith("asterism: ")]
    assert len(lines) == 1
    assert lines[0].startswith("asterism: rank 1 failed: ")
    assert lines[0].endswith("slow_loaders raised RuntimeError: no data on rank 1")
    assert not (tmp_path / "run").exists()


def without_launcher(rank: int, port: int, out: Path) -> subprocess.Popen[str]:
    """One rank of two, as `srun` and the like start it: nobody ends it when the other is gone."""
    variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    return subprocess.Popen(
        [*PROGRAM, "sparsify", *map(str, SEARCH), "--out", str(out)],
        env=environment(**variables, MASTER_PORT=str(port), **SLOWLY),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_without_a_launcher_the_next_rank_tells_that_the_first_is_gone(tmp_path: Path) -> None:
    """Messages between the ranks are lost with rank 0, which keeps them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    first, second = (without_launcher(rank, port, tmp_path / "run") for rank in range(2))
    wait_for_trial(first, 1)
    first.kill()
    first.communicate()
    lines = end(second).splitlines()
    assert second.returncode == 2
    assert [line for line in lines if line.startswith("asterism: ")] == lines[-1:]
    assert lines[-1].startswith("asterism: rank 0 is gone, ended from outside: ")


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_port_in_use_is_one_line(rank: int, tmp_path: Path) -> None:
    """Of rank 0; the others end as well, and do not wait for what is not rank 0."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        lines = end(without_launcher(rank, port, tmp_path / "run")).splitlines()
    message = f"asterism: the port of 127.0.0.1:{port} is in use: choose another"
    assert [line[: len(message)] for line in lines if " port " in line] == [message][rank:]
    assert not (tmp_path / "run").exists()


def test_shards_need_ranks(tmp_path: Path) -> None:
    done = asterism("sparsify", *SEARCH, "--fsdp", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "start them with torchrun --nproc-per-node 2 -m asterism sparsify" in done.stderr
