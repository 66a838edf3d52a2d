"""One search over every kind of layer: nothing is traced or needs to be known of the model."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import asterism


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 8, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(16, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(self.lstm(x)[0])[0][:, -1])


class Attentive(nn.Module):
    """Attention, a layer called twice, and one tied to another."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.twice = nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.twice.weight
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        x = x + self.attention(x, x, x)[0]
        x = self.tied(torch.relu(self.twice(torch.relu(self.twice(x)))))
        return self.head(x.mean(1))


class Convolutional(nn.Module):
    """Grouped and transposed convolutions, and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Conv1d(4, 8, 3, padding=1).requires_grad_(False)
        self.grouped = nn.Conv1d(8, 8, 3, padding=1, groups=4)
        self.transposed = nn.ConvTranspose1d(8, 8, 2, stride=2)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.grouped(torch.relu(self.frozen(x.transpose(1, 2)))))
        return self.head(self.transposed(x).mean(2))


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(128, 6, 4, generator=generator)
    return list(zip(inputs.split(32), (inputs.mean((1, 2)) > 0).long().split(32), strict=True))


@pytest.mark.parametrize("make", [Recurrent, Attentive, Convolutional])
def test_every_kind_of_layer_gets_sparse_within_the_tolerance(make):
    torch.manual_seed(0)
    model = make()
    task = asterism.supervised(batches(), batches())
    task.fit(model, torch.optim.AdamW(model.parameters(), lr=0.02), epochs=20)
    before = copy.deepcopy(model.state_dict())
    result = asterism.sparsify(model, task, max_drop=5.0, max_epochs=20)
    assert task.evaluate(model) == result.best.metric >= result.history[0].metric - 5.0
    assert result.best.density < 0.9
    assert model.state_dict().keys() == before.keys()
    if isinstance(model, Attentive):
        assert model.tied.weight is model.twice.weight
    if isinstance(model, Convolutional):
        assert torch.equal(model.frozen.weight, before["frozen.weight"])
