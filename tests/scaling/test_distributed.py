"""Two gloo processes find what one process finds: weights to rounding, masks bit by bit."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from support import two_processes
from support.ranks import run_ranks
from support.two_processes import (
    PLACEMENTS,
    SETTINGS,
    Result,
    first_half,
    resume,
    run,
    save,
    select_and_draw,
    start,
    train_in_halves,
)

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch is built without torch.distributed"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both processes have run, each for all tests here."""
    folder = tmp_path_factory.mktemp("world")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        model, optimizer = start("noise", itself)
        first_half(model, optimizer)
        save(model, optimizer, folder / "checkpoint of one")
    run_ranks(two_processes.main, folder, 2)
    return folder


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Any]]:
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(2)]


def itself(model: nn.Sequential) -> nn.Module:
    return model


def assert_close(found: Result, expected: Result) -> None:
    assert found.keys() == expected.keys()
    for name, mask in expected["mask"].items():
        assert torch.equal(found["mask"][name], mask), name
    for kind in found.keys() - {"mask"}:
        assert found[kind].keys() == expected[kind].keys()
        for name, tensor in expected[kind].items():
            torch.testing.assert_close(found[kind][name], tensor, rtol=1e-9, atol=1e-12, msg=name)


def assert_identical(found: Result, expected: Result) -> None:
    for kind, tensors in expected.items():
        for name, tensor in tensors.items():
            assert torch.equal(found[kind][name], tensor), (kind, name)


@pytest.mark.parametrize("settings", SETTINGS)
def test_sharded_training_is_that_of_one_process(
    ranks: list[dict[str, Any]], settings: str
) -> None:
    expected = run(settings, itself)
    assert not all(mask.all() for mask in expected["mask"].values())
    for rank in ranks:
        assert_close(rank[f"fsdp2 {settings}"], expected)


def test_ranks_agree_bit_by_bit(ranks: list[dict[str, Any]]) -> None:
    first, second = ranks
    assert first.keys() == second.keys()
    for name, result in first.items():
        if isinstance(result, dict):
            assert_identical(second[name], result)


@pytest.mark.parametrize("settings", ["noise", "latent"])
def test_a_sharded_run_resumes_bit_by_bit(ranks: list[dict[str, Any]], settings: str) -> None:
    for rank in ranks:
        assert_identical(rank[f"fsdp2 {settings} resumed"], rank[f"fsdp2 {settings}"])


def test_a_sharded_run_resumes_from_whole_states(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert_identical(rank["fsdp2 noise from whole"], rank["fsdp2 noise"])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("settings", ["noise", "latent"])
def test_a_sharded_run_goes_on_in_one_process(
    folder: Path, ranks: list[dict[str, Any]], settings: str
) -> None:
    found = resume(settings, itself, folder / f"checkpoint {settings}")
    assert_close(found, ranks[0][f"fsdp2 {settings}"])


def test_a_run_of_one_process_goes_on_sharded(ranks: list[dict[str, Any]]) -> None:
    expected = run("noise", itself)
    for rank in ranks:
        assert_close(rank["fsdp2 from one process"], expected)


def test_shards_of_another_world_are_refused_and_change_nothing(
    ranks: list[dict[str, Any]],
) -> None:
    expected = run("noise", itself)
    for rank in ranks:
        assert rank["another world"].startswith(
            "the saved omega of fc1.weight is a shard of 2 ranks, and here are 1: save and load"
        )
        assert_identical(rank["refused"], expected)


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
def test_masks_and_noise_are_those_of_one_process_bit_by_bit(
    ranks: list[dict[str, Any]], placement: Any
) -> None:
    expected = select_and_draw(lambda tensor: tensor)
    for rank in ranks:
        assert_identical(rank[f"selected {placement}"], {"": expected})


def test_a_cut_adds_up_and_gathers_nothing(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert any("allreduce" in name.replace("_", "") for name in rank["collectives"])
        assert not any("gather" in name for name in rank["collectives"]), rank["collectives"]


def test_replicated_training_is_that_of_one_process(ranks: list[dict[str, Any]]) -> None:
    """Names, and so the noise, are those of the model inside DistributedDataParallel."""
    expected = run("noise", itself)
    for rank in ranks:
        assert_close(rank["ddp noise"], expected)


def test_halves_of_a_batch_add_up(ranks: list[dict[str, Any]]) -> None:
    expected = train_in_halves(itself, slice(0, 16))
    for rank in ranks:
        assert_close(rank["ddp in halves"], expected)


def test_fsdp1_is_refused(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert "use FSDP2's fully_shard instead" in rank["fsdp1"]
