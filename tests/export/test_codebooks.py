"""Few values per tensor, learnt: the model always holds them, and the latent weights move."""

from __future__ import annotations

import copy

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import nn

from asterism import load_state_dict, save
from asterism.errors import InputError
from asterism.export.codebooks import Codebooks, regions


def sparse_mlp() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    with torch.no_grad():
        for param in model.parameters():
            if param.dim() > 1:
                param *= torch.rand_like(param) < 0.3
    return model


def task() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(256, 16, generator=generator)
    return inputs, (inputs[:, :4] + inputs[:, 4:8]).argmax(1)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> float:
    inputs, labels = task()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    return float(nn.functional.cross_entropy(model(inputs), labels).detach())


def sgd(model: nn.Module, lr: float = 0.05) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def values(param: torch.Tensor) -> int:
    return len(param.detach()[param.detach() != 0].unique())


def test_the_model_holds_few_values_at_every_step_and_zeros_stay() -> None:
    model = sparse_mlp()
    zeros = [param == 0 for param in model.parameters()]
    optimizer = Codebooks(sgd(model), model, bits=2, renew_every=7)
    for _ in range(20):
        assert all(values(param) <= 4 for param in model.parameters() if param.dim() > 1)
        train(model, optimizer, 1)
    assert all(
        bool((param.detach()[zero] == 0).all())
        for param, zero in zip(model.parameters(), zeros, strict=True)
    )


def test_training_finds_better_codebooks_than_rounding_the_trained_network() -> None:
    trained = sparse_mlp()
    train(trained, sgd(trained), 300)
    rounded = sparse_mlp()
    rounded.load_state_dict(trained.state_dict())
    optimizer = Codebooks(sgd(rounded, lr=0.005), rounded, bits=2, renew_every=20)
    inputs, labels = task()
    before = float(nn.functional.cross_entropy(rounded(inputs), labels).detach())
    assert train(rounded, optimizer, 300) < 0.8 * before


def test_what_it_trained_is_saved_without_loss_at_the_same_bits(tmp_path) -> None:
    model = sparse_mlp()
    train(model, Codebooks(sgd(model), model, bits=3), 50)
    save(model, tmp_path / "net.asterism", bits=3)
    for name, found in load_state_dict(tmp_path / "net.asterism").items():
        torch.testing.assert_close(found, model.state_dict()[name], rtol=0.02, atol=1e-4, msg=name)


@given(
    entries=st.lists(st.floats(-4, 4, width=16), min_size=1, max_size=6, unique=True),
    costs=st.lists(st.floats(0, 8, width=16), min_size=6, max_size=6),
)
def test_each_number_goes_to_the_entry_that_costs_least(entries, costs) -> None:
    book = torch.tensor(sorted(entries), dtype=torch.float64)
    price = torch.tensor(costs[: len(book)], dtype=torch.float64)
    numbers = torch.linspace(-6, 6, 97, dtype=torch.float64)
    taken, between = regions(book, price)
    found = taken[torch.bucketize(numbers, between)]
    each = (numbers[:, None] - book).square() + price
    torch.testing.assert_close(each.gather(1, found[:, None])[:, 0], each.amin(1))


def test_a_price_makes_the_file_smaller_and_leaves_biases(tmp_path) -> None:
    sizes, kept = [], []
    for price in (0.0, 0.01, 0.03):
        model = sparse_mlp()
        train(model, Codebooks(sgd(model), model, bits=3, renew_every=10, price=price), 100)
        sizes.append(save(model, tmp_path / "net.asterism", bits=3))
        weights = [param for param in model.parameters() if param.dim() > 1]
        kept.append(sum(int(weight.count_nonzero()) for weight in weights))
        assert all(bool(param.all()) for param in model.parameters() if param.dim() == 1)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 1.1 * sizes[2]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > kept[2]


def test_what_a_price_made_zero_may_return() -> None:
    model = sparse_mlp()
    optimizer = Codebooks(sgd(model), model, bits=2, renew_every=1, price=0.1)
    zeros = (model[0].weight == 0).sum()
    optimizer.price = 0.0
    train(model, optimizer, 1)
    assert (model[0].weight == 0).sum() < zeros


@pytest.mark.parametrize("price", [0.0, 0.02])
def test_a_run_resumes_to_the_same_bits(price: float) -> None:
    model = sparse_mlp()
    optimizer = Codebooks(sgd(model), model, bits=2, renew_every=5, price=price)
    train(model, optimizer, 8)
    again = sparse_mlp()
    other = Codebooks(sgd(again), again, bits=2, renew_every=5)
    again.load_state_dict(model.state_dict())
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer, 8), train(again, other, 8)
    for one, two in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_failing_step_leaves_the_quantised_weights() -> None:
    model = sparse_mlp()
    optimizer = Codebooks(sgd(model), model, bits=2)
    shown = {name: param.detach().clone() for name, param in model.named_parameters()}
    optimizer.param_groups[0]["lr"] = "fast"
    with pytest.raises(TypeError):
        train(model, optimizer, 1)
    for name, param in model.named_parameters():
        torch.testing.assert_close(param.detach(), shown[name], msg=name)


def test_what_does_not_fit_is_refused() -> None:
    model = sparse_mlp()
    with pytest.raises(InputError, match="no parameters nothing"):
        Codebooks(sgd(model), model, bits={"nothing": 3})
    with pytest.raises(InputError, match="no closure"):
        Codebooks(sgd(model), model, bits=3).step(lambda: 0)
    with pytest.raises(InputError, match="renew_every"):
        Codebooks(sgd(model), model, bits=3, renew_every=0)
    with pytest.raises(InputError, match="price"):
        Codebooks(sgd(model), model, bits=3, price=-1.0)
