"""One suite over layers of every kind: the same training, the same exact cut, whole units."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from asterism import Group, ProximalReweighting, ReweightedL1
from asterism.pruning.scores import count
from asterism.scaling.penalties import Penalty
from support.explicit import (
    Explicit,
    assert_exact_zeros,
    assert_same_theta,
    nonzeros,
    omegas,
    train,
    wrap,
)


class Between(nn.Module):
    """A layer that takes the six numbers of an example in its own shape, and a head."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.layer, self.shape = layer, shape
        self.head = nn.Linear(outputs, 3)

    def forward(self, x: Tensor) -> Any:
        y = self.layer(x.view(-1, *self.shape))
        y = y[0] if isinstance(y, tuple) else y
        return self.head(y.flatten(1))


class Attention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        # No biases: softmax does not feel that of the keys, and Adam would train on its rounding.
        self.attention = nn.MultiheadAttention(4, 2, bias=False, batch_first=True, **options)

    def forward(self, x: Tensor) -> Any:
        queries = (x * torch.tensor([1.0, -0.5, 2.0, 0.3], dtype=x.dtype)).sin()
        kdim, vdim = self.attention.kdim, self.attention.vdim
        return self.attention(queries, queries[..., :kdim], queries[..., :vdim])[0]


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x: Tensor) -> Any:
        return self.cell(x[:, 1], self.cell(x[:, 0]))


KINDS: dict[str, Callable[[], Between]] = {
    "Conv1d": lambda: Between(nn.Conv1d(2, 4, 2), (2, 3), 8),
    "Conv2d": lambda: Between(nn.Conv2d(2, 4, (1, 2)), (2, 1, 3), 8),
    "Conv3d": lambda: Between(nn.Conv3d(2, 4, (1, 1, 2)), (2, 1, 1, 3), 8),
    "grouped": lambda: Between(nn.Conv1d(2, 4, 2, groups=2), (2, 3), 8),
    "depthwise": lambda: Between(nn.Conv1d(2, 2, 2, groups=2), (2, 3), 4),
    "ConvTranspose1d": lambda: Between(nn.ConvTranspose1d(2, 4, 2), (2, 3), 16),
    "ConvTranspose2d": lambda: Between(nn.ConvTranspose2d(2, 4, (1, 2)), (2, 1, 3), 16),
    "ConvTranspose3d": lambda: Between(nn.ConvTranspose3d(2, 4, (1, 1, 2)), (2, 1, 1, 3), 16),
    "grouped transposed": lambda: Between(nn.ConvTranspose1d(2, 4, 2, groups=2), (2, 3), 16),
    "Linear": lambda: Between(nn.Linear(6, 5), (6,), 5),
    "RNN": lambda: Between(nn.RNN(3, 4, batch_first=True), (2, 3), 8),
    "GRU": lambda: Between(nn.GRU(3, 4, batch_first=True, num_layers=2), (2, 3), 8),
    "LSTM": lambda: Between(nn.LSTM(3, 4, batch_first=True, bidirectional=True), (2, 3), 16),
    "LSTM projected": lambda: Between(nn.LSTM(3, 4, batch_first=True, proj_size=2), (2, 3), 4),
    "GRUCell twice": lambda: Between(Cell(), (2, 3), 4),
    "attention": lambda: Between(Attention(), (6, 1), 24),
    "attention of three": lambda: Between(Attention(kdim=3, vdim=2), (6, 1), 24),
}
PENALTIES: dict[str, Penalty] = {
    "single": ReweightedL1(0.3),
    "filter": Group(ReweightedL1(0.3), by="filter"),
    "channel": Group(ReweightedL1(0.3), by="channel"),
    "row": Group(ReweightedL1(0.3), by="row"),
}


def make(kind: str) -> Between:
    torch.manual_seed(0)
    return KINDS[kind]().double()


def weights(model: nn.Module) -> int:
    return sum(theta.numel() for name, theta in model.named_parameters() if "weight" in name)


@pytest.mark.parametrize("by", PENALTIES)
@pytest.mark.parametrize("kind", KINDS)
def test_training_is_in_q_space_and_the_cut_is_exact(kind: str, by: str) -> None:
    model = make(kind)
    adam = torch.optim.AdamW(model.parameters(), lr=0.01)
    optimizer = wrap(model, adam, penalty=PENALTIES[by])
    assert sum(theta.numel() for theta in optimizer.weights().values()) == weights(model)
    optimizer.reweight()
    reference = Explicit(model, omegas(optimizer))
    plain = torch.optim.AdamW(reference.parameters(), lr=0.01)
    train(model, optimizer, range(3))
    train(reference, plain, range(3))
    assert_same_theta(model, reference, rtol=1e-6)
    keys = list(model.state_dict())
    optimizer.prune(density=0.5, per_layer=True)
    for mask in optimizer.masks().values():
        kept, asked = int(mask.sum()), count(0.5, mask.numel())
        assert kept == asked if by == "single" else 0 < kept <= asked
    train(model, optimizer, range(3, 8))
    optimizer.reweight()
    train(model, optimizer, range(8, 10))
    assert_exact_zeros(model, optimizer)
    assert list(copy.deepcopy(model).state_dict()) == keys


@pytest.mark.parametrize("kind", KINDS)
def test_the_proximal_step_kills_whole_units_and_no_parts_of_them(kind: str) -> None:
    model = make(kind)
    sgd = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = wrap(
        model,
        sgd,
        penalty=Group(ReweightedL1(0.3), by="filter"),
        lam=0.3,
        algorithm=ProximalReweighting,
    )
    train(model, optimizer, range(40))
    dead = 0
    for layer in optimizer._layers:
        assert layer.groups is not None
        alive = layer.groups.sums((layer.param != 0).long())
        assert ((alive == 0) | (alive == layer.groups.sizes)).all()
        dead += int((alive == 0).sum())
    assert dead > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_global_cut_is_met_to_the_weight(kind: str) -> None:
    model = make(kind)
    optimizer = wrap(model)
    optimizer.prune(density=0.4)
    assert nonzeros(optimizer) == count(0.4, weights(model))


def test_penalties_densities_and_exclusions_by_pattern_work_together() -> None:
    model = make("LSTM")
    optimizer = wrap(
        model,
        exclude=["head"],
        penalty={"*_ih_*": Group(ReweightedL1(0.3), by="channel"), "*": ReweightedL1(0.3)},
    )
    assert all("layer.weight" in name for name in optimizer.weights())
    optimizer.reweight()
    optimizer.prune(density={"*_ih_*reverse": 0.67, "*_hh_*": 0.25})
    density = {name: float(mask.double().mean()) for name, mask in optimizer.masks().items()}
    assert density == {
        "layer.weight_ih_l0": 1.0,
        "layer.weight_hh_l0": 0.25,
        "layer.weight_ih_l0_reverse": pytest.approx(2 / 3),
        "layer.weight_hh_l0_reverse": 0.25,
    }
    column = optimizer.masks()["layer.weight_ih_l0_reverse"]
    assert (column == column[:1]).all()
