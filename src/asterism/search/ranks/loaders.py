"""Each rank's part of the batches that one process would have.

Owns which loaders are divided. Rank 0 draws the order of an epoch, as one process would, and tells
it; each rank loads its part of every batch. A search therefore takes the same steps on any number
of ranks, and may be resumed on another number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zlib import crc32

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from asterism.errors import InputError
from asterism.search.ranks.crew import Crew

PLAIN = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
KEPT = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
)


class Share:
    """This rank's part of each batch of a loader.

    loader  as one process would use it
    crew    the ranks
    count   the examples of this rank in the last batch; 0 where there were fewer than ranks, and
            the first one was given for the forward pass alone
    """

    def __init__(self, loader: DataLoader[Any], crew: Crew) -> None:
        self.loader, self.crew, self.count = loader, crew, 0
        self.generator, self.sampler = loader.generator, loader.sampler

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        batches, seed = self.crew.decide(lambda: _draw(self.loader))
        rank, size = self.crew.rank, self.crew.size
        parts = [batch[rank::size] for batch in batches]
        options = {name: getattr(self.loader, name) for name in KEPT}
        loader: DataLoader[Any] = DataLoader(
            self.loader.dataset,
            batch_sampler=[part or batch[:1] for part, batch in zip(parts, batches, strict=True)],
            generator=torch.Generator().manual_seed(seed + rank),  # of worker processes
            **options,
        )
        for part, batch in zip(parts, loader, strict=True):
            self.count = len(part)
            yield batch


class _Indices(Dataset[Any]):
    """Gives each index itself."""

    def __getitem__(self, index: Any) -> Any:
        return index


def _draw(loader: DataLoader[Any]) -> tuple[list[list[Any]], int]:
    """The indices of each batch of an epoch, and a seed, with the draws of the loader itself."""
    indices: DataLoader[Any] = DataLoader(
        _Indices(),
        batch_sampler=loader.batch_sampler,
        collate_fn=list,
        generator=loader.generator,
    )
    batches = list(indices)
    generator = loader.generator or torch.default_generator
    return batches, crc32(generator.get_state().numpy().tobytes())


def divide(loader: Any, crew: Crew, what: str) -> Any:
    """The part of this rank, of a loader whose order is torch's own; any other is left as it is.

    A sampler of the user's own may have divided the data already. Where none has, every rank sees
    all of it: that takes longer and gives the same.

    what  the data is called
    """
    if crew.size == 1:
        return loader
    plain = (
        type(loader) is DataLoader
        and not isinstance(loader.dataset, IterableDataset)
        and type(loader.batch_sampler) is BatchSampler
        and isinstance(loader.sampler, PLAIN)
    )
    _check_same(len(loader.sampler) if plain else None, crew, what)
    return Share(loader, crew) if plain else loader


def _check_same(examples: int | None, crew: Crew, what: str) -> None:
    """An error where rank 0 would draw examples that another rank does not have.

    examples  of a loader that is divided, None for one that is not
    """
    first, *others = crew.gather(examples)
    for rank, other in enumerate(others, start=1):
        if other != first:
            raise InputError(
                f"the {what} loader {_described(first)} on rank 0 but {_described(other)} on rank"
                f" {rank}: give every rank the same data, which is divided here"
            )


def _described(examples: int | None) -> str:
    return "is no plain DataLoader" if examples is None else f"has {examples} examples"


def count_of(loader: Any, targets: Any) -> int:
    """The examples in the last batch that count on this rank.

    loader   that gave the batch
    targets  of the batch
    """
    return loader.count if isinstance(loader, Share) else len(targets)
