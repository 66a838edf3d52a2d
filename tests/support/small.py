"""A model and data small enough for a search in a second: what factories name and tests share."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import asterism
from asterism.search.task import Supervised


class InBatches(TensorDataset):
    """Fetched a batch at a time, which takes a third of the time."""

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        return [tensor[indices] for tensor in self.tensors]


class Slow(InBatches):
    """Takes SECONDS_PER_EXAMPLE for each, so that a test can end a search half-way."""

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        time.sleep(len(indices) * float(os.environ.get("SECONDS_PER_EXAMPLE", "0")))
        return super().__getitems__(indices)


def as_fetched(batch: list[Tensor]) -> list[Tensor]:
    """There is nothing to collate."""
    return batch


def make_data(seed: int = 3) -> TensorDataset:
    """Three classes, told apart by the first three of 20 inputs."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(512, 20, generator=generator)
    return TensorDataset(inputs, inputs[:, :3].argmax(1))


def loaders() -> tuple[DataLoader[tuple[Tensor, ...]], DataLoader[tuple[Tensor, ...]]]:
    """The training order is drawn from a generator of its own."""
    order = torch.Generator().manual_seed(5)
    data, others = Slow(*make_data().tensors), InBatches(*make_data(seed=4).tensors)
    train = DataLoader(data, 64, shuffle=True, generator=order, collate_fn=as_fetched)
    return train, DataLoader(others, 256, collate_fn=as_fetched)


def regression() -> dict[str, Any]:
    """The sum of the first three inputs, measured by the mean squared error."""
    data = [InBatches(x, x[:, :3].sum(1, keepdim=True)) for x in map(_inputs, (3, 4))]
    train, valid = (DataLoader(each, 64, collate_fn=as_fetched) for each in data)
    measures = {"loss": F.mse_loss, "metric": F.mse_loss, "higher_is_better": False}
    return {"train_loader": train, "valid_loader": valid, **measures}


def _inputs(seed: int) -> Tensor:
    return make_data(seed).tensors[0]


class Both(nn.Module):
    """Two inputs side by side; the largest is the class."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y], 1).relu()


def pairs() -> dict[str, Any]:
    """Batches of ((x, y), targets), of which the network `Both` has a third right."""
    x, y = torch.eye(3)[:2].repeat(3, 1), torch.zeros(6, 2)
    batch = ((x, y), torch.tensor([0, 0, 1, 1, 2, 2]))
    return {"train_loader": [batch], "valid_loader": [batch]}


class Twofold(nn.Module):
    """Two outputs."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.relu(), x.sigmoid()


class Bessel(nn.Module):
    """An operation that the runtime does not have."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x)


def with_bessel() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 8), Bessel(), nn.Linear(8, 3))


def task() -> Supervised:
    return asterism.supervised(*loaders())


def task_with(**changed: Any) -> asterism.Task:
    """The same task with one of its functions, its direction or its generators changed."""
    whole = task()
    parts = {
        "fit": whole.fit,
        "evaluate": whole.evaluate,
        "higher_is_better": whole.higher_is_better,
        "generators": whole.generators,
    }
    return asterism.Task(**{**parts, **changed})


def untrained() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3)
    )


def trained() -> nn.Sequential:
    """Some 97 % of the validation data right; every call gives the same bits and random state."""
    model = untrained()
    state, random_state = _train_once()
    model.load_state_dict(state)
    torch.set_rng_state(random_state)
    return model


@cache
def _train_once() -> tuple[dict[str, Tensor], Tensor]:
    model = untrained()
    task().fit(model, torch.optim.AdamW(model.parameters(), lr=0.01), epochs=20)
    return model.state_dict(), torch.get_rng_state()
