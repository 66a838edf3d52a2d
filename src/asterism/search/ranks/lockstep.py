"""An epoch that all ranks take step by step.

Owns the one exchange of a step beside the gradients: whether each rank has a batch, of how many
examples, and the loss of the step before. A rank that has none while others have would leave them
waiting for its gradients; a loss that is not finite on one rank ends the trial on all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import torch
from torch import Tensor

from asterism.errors import DivergedError, InputError
from asterism.search.ranks.crew import Crew

T = TypeVar("T")


class Epoch(Generic[T]):
    """The batches of an epoch, and the mean of their losses, in one process.

    batches  in their order
    number   of the epoch, from 1 on
    """

    def __init__(self, batches: Iterable[T], number: int) -> None:
        self.batches, self.number = batches, number
        self.steps, self.total = 0, torch.zeros(())

    def __iter__(self) -> Iterator[T]:
        for batch in self.batches:
            self.steps += 1
            yield batch

    def weigh(self, loss: Tensor) -> Tensor:
        """What to differentiate, for the loss of this step; an error where it is not finite."""
        # To look at each loss would be to wait for a device: there once an epoch.
        if loss.is_cpu and not loss.isfinite():
            raise DivergedError(f"the loss is {loss.item()} in epoch {self.number}")
        self.total = self.total + loss.detach()
        return loss

    @property
    def mean(self) -> float:
        """The mean loss; an error where it is not finite."""
        mean = float(self.total) / max(self.steps, 1)
        if not math.isfinite(mean):
            raise DivergedError(f"the loss is {mean} in epoch {self.number}")
        return mean


class SharedEpoch(Epoch[T]):
    """The same on several ranks: steps and mean loss are those of all.

    batches  of this rank
    number   of the epoch, from 1 on
    crew     the ranks
    what     the data is called
    count    the examples of a batch that count on this rank
    """

    def __init__(
        self,
        batches: Iterable[T],
        number: int,
        crew: Crew,
        what: str,
        count: Callable[[T], int],
    ) -> None:
        super().__init__(batches, number)
        self.crew, self.what, self.count = crew, what, count
        self.total = self.total.double()
        self.mine, self.examples, self.loss = 0, 1.0, 0.0  # of the last step

    def __iter__(self) -> Iterator[T]:
        iterator = iter(self.batches)
        while True:
            batch = next(iterator, None)
            mine = 0 if batch is None else self.count(batch)
            given, examples, loss = self.crew.add(
                batch is not None, mine, self.loss * self.mine / self.examples
            )
            self._check(batch is not None, given, loss)
            if batch is None:
                return
            self.mine, self.examples = mine, examples
            self.steps += 1
            yield batch

    def _check(self, has_batch: bool, given: float, loss: float) -> None:
        """Errors that all ranks raise at once: the last loss, and who has a batch."""
        self.total = self.total + loss
        if not math.isfinite(loss):
            raise DivergedError(f"the loss is {loss} in epoch {self.number}")
        if 0 < given < self.crew.size:
            have = self.crew.gather(has_batch)
            without, others = have.index(False), have.index(True)
            raise InputError(
                f"rank {without} has {self.steps} {self.what} batches and rank {others} has more:"
                " give every rank as many, as a DistributedSampler does"
            )

    def weigh(self, loss: Tensor) -> Tensor:
        """By this rank's share of the examples: the mean of gradients is then that of all."""
        self.loss = float(loss.detach())
        weight = self.mine * self.crew.size / self.examples
        return loss if weight == 1 else loss * weight
