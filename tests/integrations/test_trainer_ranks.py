"""Each trainer on two ranks: it cuts on schedule, is killed, and continues from its checkpoint."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from support import trainer_ranks
from support.paths import environment
from support.ranks import SECONDS, TORCHRUN

pytestmark = pytest.mark.slow
WEIGHTS = ("fc1.weight", "fc2.weight")


def launch(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*TORCHRUN, "--nproc-per-node", "2", "-m", trainer_ranks.__name__]
    return subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.parametrize("trainer", ["lightning", "transformers", "accelerate"])
def test_two_ranks_are_trained_cut_saved_killed_and_resumed(trainer: str, tmp_path: Path) -> None:
    killed = launch(trainer, tmp_path, "die")
    assert killed.returncode != 0
    assert "exitcode: -9" in killed.stderr, killed.stderr
    done = launch(trainer, tmp_path)
    assert done.returncode == 0, done.stderr
    ranks = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2)]
    for rank in ranks:
        live = sum(int(rank["resumed"][name].count_nonzero()) for name in WEIGHTS)
        assert live == 18
        for name, weight in ranks[0]["whole"].items():
            assert torch.equal(rank["resumed"][name], weight), name
            assert torch.equal(rank["whole"][name], weight), name
