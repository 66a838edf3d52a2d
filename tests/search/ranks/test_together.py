"""Two ranks find what one process finds, and end together when one of them fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from support import searching_ranks
from support.ranks import run_ranks
from support.searching_ranks import Found, found, model, search

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch is built without torch.distributed"
)


def start(folder: Path, world: int) -> list[dict[str, Any]]:
    """What each rank has found; what it has printed is under "printed"."""
    outputs = run_ranks(searching_ranks.main, folder, world)
    return [
        torch.load(folder / f"rank{rank}.pt", weights_only=True) | {"printed": outputs[rank]}
        for rank in range(world)
    ]


def prepare(folder: Path) -> Path:
    """A search that one process has begun, and not finished."""
    search(model(), run=folder / "of one process", max_epochs=4)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Any]]:
    return start(folder, 2)


@pytest.fixture(scope="module")
def alone() -> Found:
    return found(search(model()))


def assert_found(ranks: Found, alone: Found) -> None:
    """Masks and decisions to the bit; weights, losses and metrics to rounding."""
    assert ranks["stop_reason"] == alone["stop_reason"]
    for ours, theirs in zip(ranks["history"], alone["history"], strict=True):
        exact = ("trial", "nonzeros", "within_tolerance", "epochs", "note")
        assert [ours[name] for name in exact] == [theirs[name] for name in exact]
        assert ours["metric"] == pytest.approx(theirs["metric"], rel=1e-9)
        assert ours.get("losses", []) == pytest.approx(theirs.get("losses", []), rel=1e-6)
    networks = [ranks["weights"], *ranks["front"]], [alone["weights"], *alone["front"]]
    for one, other in zip(*networks, strict=True):
        for name, weight in other.items():
            assert torch.equal(one[name] != 0, weight != 0), name
            torch.testing.assert_close(one[name], weight, rtol=1e-7, atol=1e-10)


def assert_same_bits(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one.keys() - {"watched"}:
            assert_same_bits(one[name], other[name])
    elif isinstance(one, list):
        for each in zip(one, other, strict=True):
            assert_same_bits(*each)
    else:
        assert one == other


@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "continued"])
def test_ranks_find_what_one_process_finds(
    ranks: list[dict[str, Any]], alone: Found, kind: str
) -> None:
    trials = {record["trial"] for record in alone["history"]}
    assert trials == {"dense", "settle", "reweight", "probe", "cut"}
    for rank in ranks:
        assert_found(rank[kind], alone)


@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "continued", "averages"])
def test_ranks_agree_bit_by_bit(ranks: list[dict[str, Any]], kind: str) -> None:
    """Seconds included, whatever their own clocks tell."""
    first, *others = ranks
    for other in others:
        assert_same_bits(other[kind], first[kind])


def test_what_was_measured_is_what_every_rank_holds(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        found = rank["averages"]
        assert found["again"] == pytest.approx(found["metric"], rel=1e-9)


def test_rank_0_alone_writes_shows_and_is_watched(
    folder: Path, ranks: list[dict[str, Any]]
) -> None:
    assert (folder / "run 0" / "model.safetensors").exists()
    assert not (folder / "run 1").exists()
    assert [rank["ddp"]["watched"] for rank in ranks] == [len(ranks[0]["ddp"]["history"]), 0]
    assert "✓ cut to" in ranks[0]["printed"]
    assert "cut to" not in ranks[1]["printed"]


def test_ranks_draw_different_numbers_and_rank_0_those_of_one_process(
    ranks: list[dict[str, Any]],
) -> None:
    torch.manual_seed(7)
    assert torch.equal(ranks[0]["drawn"], torch.rand(3))
    assert not torch.equal(ranks[0]["drawn"], ranks[1]["drawn"])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("sizes", "rank 1 has 7 training batches and rank 0 has more: give every rank as many"),
        ("examples", "the training loader has 512 examples on rank 0 but has 511 examples on rank"),
        ("kinds", "the validation loader has 512 examples on rank 0 but is no plain DataLoader on"),
        ("metric", "the metric of evaluate is 96.09375 on rank 0 and 95.09375 on rank 1: "),
        ("strayed", "after fit 0.weight is not the same on rank 1 as on rank 0: fit must call"),
        ("diverged", "training diverged: the loss is nan in epoch 1 before anything was cut"),
        ("options", "rank 1 differs from rank 0 in max_drop: start all ranks with the same"),
        ("folder", "cannot write "),
    ],
)
def test_what_is_wrong_is_one_line_on_every_rank(
    ranks: list[dict[str, Any]], kind: str, message: str
) -> None:
    for rank in ranks:
        assert rank["errors"][kind].startswith(message)
        assert "\n" not in rank["errors"][kind]


def test_what_one_rank_raises_ends_all_and_is_told_by_each(ranks: list[dict[str, Any]]) -> None:
    error = "after 4 batches the training loader raised OSError: the disk is gone"
    assert ranks[1]["raised"] == error
    assert ranks[0]["raised"] == f"rank 1 failed: {error}"


@pytest.mark.slow
def test_three_ranks_find_what_one_process_finds(tmp_path: Path, alone: Found) -> None:
    """The last batch has two examples, and one rank none."""
    first, *others = start(prepare(tmp_path), 3)
    for kind in ("ddp", "fsdp2", "continued"):
        assert_found(first[kind], alone)
    for other in others:
        assert_same_bits(other["fsdp2"], first["fsdp2"])
        assert_same_bits(other["ddp"], first["ddp"])
        assert other["errors"] == first["errors"]
    assert others[1]["raised"] == first["raised"]
