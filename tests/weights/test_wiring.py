"""Which layer reads which."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asterism.weights.wiring import chain, wiring


class Branches(nn.Module):
    """A residual connection, attention, a bare parameter; the forward leaves a trace."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Parameter(torch.randn(2, 4))
        self.second = nn.Linear(4, 4)
        self.first = nn.Linear(4, 4)
        self.attention = nn.MultiheadAttention(4, 2)
        self.unused = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        self.seen: Any = x
        x = x + self.second(x.relu())
        x, _ = self.attention(x, x, x)
        return F.linear(x, self.head)


class Undecided(nn.Module):
    """Cannot be traced: the way depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.other(x) if x.sum() > 0 else self.one(x)


def matrices(model: nn.Module) -> list[str]:
    return [name for name, param in model.named_parameters() if param.ndim > 1]


def test_branches_attention_and_bare_parameters_are_followed():
    model = Branches()
    assert wiring(model, matrices(model)) == {
        "first.weight": [],
        "second.weight": ["first.weight"],
        "attention.in_proj_weight": ["first.weight", "second.weight"],
        "attention.out_proj.weight": ["attention.in_proj_weight"],
        "head": ["attention.out_proj.weight"],
        "unused.weight": [],
    }
    assert not hasattr(model, "seen"), "the model itself is not run"


def test_layers_that_are_not_asked_for_are_passed_through():
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(3)))
    assert wiring(model, ["0.weight", "2.weight"]) == {"0.weight": [], "2.weight": ["0.weight"]}


def test_a_layer_that_is_used_twice_does_not_read_itself():
    layer = nn.Linear(3, 3)
    assert wiring(nn.Sequential(layer, nn.ReLU(), layer), ["0.weight"]) == {"0.weight": []}


@pytest.mark.parametrize("model", [Undecided(), nn.LSTM(3, 3)])
def test_every_weight_has_its_place(model):
    assert list(wiring(model, matrices(model))) == matrices(model)


def test_what_cannot_be_traced_is_a_chain():
    model = Undecided()
    assert wiring(model, matrices(model)) == chain(["one.weight", "other.weight"])
