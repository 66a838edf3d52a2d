"""DropAndGrow: which weights go, which grow, and what becomes of the momentum."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from asterism import DropAndGrow
from asterism.errors import InputError


def make(weights: list[float]) -> tuple[nn.Linear, DropAndGrow]:
    model = nn.Linear(len(weights), 1, bias=False)
    model.weight.data = torch.tensor([weights])
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, DropAndGrow(inner, model)


def test_the_smallest_weight_moves_to_the_largest_gradient():
    model, optimizer = make([3.0, -0.1, 2.0, 0.0, 0.0, 0.0])
    model.weight.grad = torch.tensor([[9.0, 0.0, 9.0, 1.0, -5.0, 2.0]])
    optimizer.rewire(0.34)
    assert optimizer.masks()["weight"].tolist() == [[True, False, True, False, True, False]]
    assert model.weight.tolist() == [[3.0, 0.0, 2.0, 0.0, 0.0, 0.0]]


def test_a_weight_that_went_may_return_at_once_from_zero():
    model, optimizer = make([3.0, -0.1, 0.0])
    model.weight.grad = torch.tensor([[0.0, 5.0, 1.0]])
    optimizer.rewire(0.5)
    assert optimizer.masks()["weight"].tolist() == [[True, True, False]]
    assert model.weight.tolist() == [[3.0, 0.0, 0.0]]


def test_a_weight_that_grows_has_no_momentum_and_learns():
    model, optimizer = make([3.0, -0.1, 0.0])
    model.weight.grad = torch.tensor([[1.0, 1.0, 1.0]])
    optimizer.step()  # momentum everywhere, the pruned weight included
    model.weight.grad = torch.tensor([[0.0, 0.0, 1.0]])
    optimizer.rewire(0.5)
    optimizer.step()
    assert model.weight[0, 1] == 0
    assert model.weight[0, 2].item() == pytest.approx(-0.1)


@given(st.integers(0, 1000), st.floats(0, 1), st.floats(0.05, 0.95))
def test_the_number_of_weights_never_changes(seed, share, density):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3))
    optimizer = DropAndGrow(torch.optim.SGD(model.parameters(), lr=0.1), model)
    optimizer.prune(density=density, per_layer=True)
    before = {name: int(mask.sum()) for name, mask in optimizer.masks().items()}
    for param in model.parameters():
        param.grad = torch.randn_like(param)
    optimizer.rewire(share)
    assert {name: int(mask.sum()) for name, mask in optimizer.masks().items()} == before
    for name, mask in optimizer.masks().items():
        assert torch.all(optimizer.weights()[name][~mask] == 0)


def test_a_share_beyond_all_is_refused():
    _, optimizer = make([1.0, 0.0])
    with pytest.raises(InputError, match="from 0 to 1, got 1.5"):
        optimizer.rewire(1.5)
