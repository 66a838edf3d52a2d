"""The parts of all ranks are the batches of one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

from asterism.search.ranks.crew import ALONE, Crew
from asterism.search.ranks.loaders import Share, count_of, divide


def crew(rank: int, size: int) -> Crew:
    """A rank that has nobody to talk to: each draws for itself what rank 0 would tell."""
    found = Crew()
    found.rank, found.size = rank, size
    return found


def loader(**options: Any) -> Any:
    generator = torch.Generator().manual_seed(1)
    return DataLoader(TensorDataset(torch.arange(23)), 5, generator=generator, **options)


def numbers(batches: Any) -> list[list[int]]:
    return [batch.tolist() for (batch,) in batches]


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize("options", [{"shuffle": True}, {"shuffle": False, "drop_last": True}])
def test_parts_make_up_the_batches_of_one_process(size: int, options: dict[str, Any]) -> None:
    whole, shares = (
        loader(**options),
        [divide(loader(**options), crew(r, size), "") for r in range(size)],
    )
    for _ in range(2):  # the second epoch has another order
        expected = numbers(whole)
        parts = []
        for share in shares:
            parts.append([(batch.tolist(), share.count) for (batch,) in share])
            assert len(share) == len(parts[-1]) == len(expected)
        for number, batch in enumerate(expected):
            found = [each for part in parts for each in part[number][0][: part[number][1]]]
            assert sorted(found) == sorted(batch)
            assert all(part[number][0] for part in parts), "a rank without a forward pass"


def test_a_rank_draws_nothing_more_from_the_generators_than_one_process_does() -> None:
    torch.manual_seed(0)
    one = DataLoader(TensorDataset(torch.arange(23)), 5, shuffle=True)
    list(one)
    expected = torch.rand(2)
    torch.manual_seed(0)
    list(divide(DataLoader(TensorDataset(torch.arange(23)), 5, shuffle=True), crew(0, 2), ""))
    assert torch.equal(torch.rand(2), expected)


def test_processes_that_load_have_other_seeds_in_each_epoch() -> None:
    share = divide(loader(shuffle=False, num_workers=1, worker_init_fn=_leave_seed), crew(0, 2), "")
    seeds = [{int(batch[0]) for (batch,) in share} for _ in range(2)]
    assert seeds[0] != seeds[1]


def _leave_seed(number: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert info is not None
    info.dataset.tensors = (torch.full((23,), info.seed),)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(torch.arange(8))


def test_what_may_be_divided_already_is_left_as_it_is() -> None:
    data = TensorDataset(torch.arange(8))
    mine = DataLoader(data, 2, sampler=DistributedSampler(data, num_replicas=2, rank=1))
    batches = [(torch.zeros(3), torch.zeros(3))]
    for given in (mine, DataLoader(Stream(), 2), batches):
        assert divide(given, crew(0, 2), "training") is given
    assert count_of(batches, batches[0][1]) == 3
    plain = DataLoader(data, 2)
    assert divide(plain, ALONE, "training") is plain
    assert isinstance(divide(plain, crew(0, 2), "training"), Share)
