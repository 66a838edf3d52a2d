"""What `test_together.py` runs on each rank, and once more in a single process.

`main` leaves in the folder what the rank has found.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import asterism
from asterism.errors import InputError
from asterism.search.ranks.crew import join
from asterism.search.ranks.replicas import shard_
from asterism.search.sparsify import SparsifyResult
from asterism.weights.sharding import whole
from support.small import Slow, as_fetched, make_data, task, trained

OPTIONS: dict[str, Any] = {
    "max_drop": 2.0,
    "max_epochs": 10,
    "max_minutes": 5.0,
    "epochs_per_cut": 1,
    "reweighting": 0.4,
    "optimizer": "sgd",
}
Found = dict[str, Any]


def model() -> nn.Sequential:
    """In double precision: rounding is far below what could move a mask."""
    net = _untrained()
    net.load_state_dict(_train_once())
    return net


def _untrained() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 3)).double()


@cache
def _train_once() -> dict[str, torch.Tensor]:
    net, (x, y) = _untrained(), _examples(3)
    adam = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(60):
        adam.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        adam.step()
    return net.state_dict()


def _examples(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = make_data(seed).tensors
    return x.double(), y


def loaders() -> tuple[Any, Any]:
    """Neither a batch of 51 by two ranks nor the last, of 2, by three comes out even."""
    order = torch.Generator().manual_seed(5)
    train = DataLoader(TensorDataset(*_examples(3)), 51, shuffle=True, generator=order)
    return train, DataLoader(TensorDataset(*_examples(4)), 300)


def slow_loaders() -> tuple[Any, Any]:
    """The same, slowed down by SECONDS_PER_EXAMPLE; an error on FAILING_RANK."""
    if os.environ.get("FAILING_RANK") == os.environ.get("RANK", "0"):
        raise RuntimeError(f"no data on rank {os.environ['RANK']}")
    train, valid = loaders()
    data, order = Slow(*train.dataset.tensors), train.generator
    return DataLoader(data, 51, shuffle=True, generator=order, collate_fn=as_fetched), valid


def search(net: nn.Module, **changed: Any) -> SparsifyResult:
    ours = asterism.supervised(*loaders())
    return asterism.sparsify(net, ours, **{**OPTIONS, "progress": False, **changed})


def found(result: SparsifyResult) -> Found:
    return {
        "weights": {name: whole(each) for name, each in result.model.state_dict().items()},
        "front": [point.state_dict() for point in result.front],
        "history": [record.to_json() for record in result.history],
        "stop_reason": result.stop_reason,
    }


# ---------------------------------------------------------------------- on several ranks


def replicated(rank: int, folder: Path) -> Found:
    """Each rank is told of a folder of its own, to see who writes, and shows what it shows.

    By its own clock, another rank than the first would end the search at once.
    """
    seen: list[Any] = []
    net = model() if rank == 0 else model().apply(_forget)
    clock = time.perf_counter
    time.perf_counter = lambda: clock() * (1 + 1e6 * rank)
    try:
        result = search(net, run=folder / f"run {rank}", watch=seen.append, progress=None)
    finally:
        time.perf_counter = clock
    return {**found(result), "watched": len(seen)}


def _forget(module: nn.Module) -> None:
    """Weights that rank 0's are to replace."""
    if isinstance(module, nn.Linear):
        nn.init.constant_(module.weight, 0.5)


def sharded() -> Found:
    net = model()
    shard_(net)
    return found(search(net))


def with_averages() -> Found:
    """Shards, and running averages that each rank makes of its own examples."""
    net = trained()
    shard_(net)
    result = asterism.sparsify(net, task(), max_drop=2.0, max_epochs=2, progress=False)
    return {**found(result), "metric": result.best.metric, "again": task().evaluate(net)}


def continued(folder: Path) -> Found:
    """What one process has begun."""
    return found(search(model(), run=folder / "of one process", resume=True))


def error_of(**changed: Any) -> str:
    given = changed.pop("task", None) or asterism.supervised(*loaders())
    try:
        asterism.sparsify(model(), given, **{**OPTIONS, "progress": False, **changed})
    except InputError as error:
        return str(error)
    return "no error"


def errors(rank: int) -> dict[str, str]:
    """Those that all ranks see at once: the group lives on."""
    whole_task = asterism.supervised(*loaders())
    train, valid = loaders()
    batches = list(train)[: 11 - 4 * rank]

    def stray(net: nn.Module, optimizer: Any, epochs: int) -> None:
        inside = net.module
        assert isinstance(inside, nn.Module)
        asterism.supervised(batches[:5] if rank else batches[5:9], valid).fit(
            inside, optimizer, epochs
        )

    def differs(net: nn.Module) -> float:
        return whole_task.evaluate(net) - rank

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        found = nn.functional.cross_entropy(outputs, targets)
        return found * torch.nan if rank == 1 else found

    fewer = DataLoader(TensorDataset(*(each[rank:] for each in train.dataset.tensors)), 51)
    strayed = asterism.Task(stray, whole_task.evaluate)
    return {
        "sizes": error_of(task=asterism.supervised(batches, valid)),
        "examples": error_of(task=asterism.supervised(fewer, valid)),
        "kinds": error_of(task=asterism.supervised(train, batches if rank else valid)),
        "metric": error_of(task=asterism.Task(whole_task.fit, differs)),
        "strayed": error_of(task=strayed),
        "diverged": error_of(task=asterism.supervised(*loaders(), loss=loss)),
        "options": error_of(max_drop=2.0 + rank),
        "folder": error_of(run=__file__),
    }


def one_raises(rank: int) -> str:
    """The others wait for its gradients when it does, and the group ends with it."""
    train, valid = loaders()

    class Data(TensorDataset):
        calls = 0

        def __getitem__(self, index: int) -> Any:
            self.calls += 1
            if rank == 1 and self.calls > 100:
                raise OSError("the disk is gone")
            return super().__getitem__(index)

    broken = DataLoader(Data(*train.dataset.tensors), 51)
    began = time.monotonic()
    text = error_of(task=asterism.supervised(broken, valid))
    assert time.monotonic() - began < 30
    return text


def main(rank: int, world: int, folder: Path) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world
    )
    results: dict[str, Any] = {
        "ddp": replicated(rank, folder),
        "fsdp2": sharded(),
        "averages": with_averages(),
        "continued": continued(folder),
    }
    with join() as crew:
        torch.manual_seed(7)
        crew.part_ways()
        results["drawn"] = torch.rand(3)
    results["errors"] = errors(rank)
    results["raised"] = one_raises(rank)
    torch.save(results, folder / f"rank{rank}.pt")
