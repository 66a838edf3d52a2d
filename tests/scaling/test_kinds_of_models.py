"""Models of every kind: averaged, compiled, tied, recurrent, attentive, frozen, or unfit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from asterism import InputError, ReweightedL1
from support.explicit import (
    Explicit,
    assert_same_theta,
    loss,
    make_model,
    omegas,
    train,
    wrap,
)


def test_averaged_copies_are_masked_on_demand() -> None:
    model = make_model()
    optimizer = wrap(model)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    average.update_parameters(model)
    optimizer.prune(density=0.3)
    train(model, optimizer, range(3))
    average.update_parameters(model)
    mask = optimizer.masks()["fc1.weight"]
    assert (average.module.fc1.weight[~mask] != 0).any()
    optimizer.apply_masks(average)
    assert (average.module.fc1.weight[~mask] == 0).all()
    assert (average.module.fc1.weight[mask] != 0).all()
    with pytest.raises(InputError, match="no parameter fc1.weight"):
        optimizer.apply_masks(nn.Linear(2, 2))


def test_a_compiled_model_trains_as_it_is() -> None:
    models = [make_model(), make_model()]
    compiled = torch.compile(models[1], backend="aot_eager")
    for model, called in ((models[0], models[0]), (models[1], compiled)):
        optimizer = wrap(called, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
        assert set(optimizer.masks()) == {"fc1.weight", "fc2.weight"}
        optimizer.reweight()
        train(called, optimizer, range(3))
        optimizer.prune(density=0.4)
        train(called, optimizer, range(3, 6))
    for name, theta in models[0].state_dict().items():
        torch.testing.assert_close(models[1].state_dict()[name], theta)


class Tied(nn.Module):
    """One weight under two names, and a module that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(6, 6)
        self.twin = nn.Linear(6, 6)
        self.twin.weight = self.first.weight
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.twin(self.first(self.first(x).tanh()).tanh()))


def test_tied_weights_stay_tied_and_count_once() -> None:
    model = Tied().double()
    optimizer = wrap(model)
    optimizer.reweight()
    reference = Explicit(model, omegas(optimizer))
    plain = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9)
    train(model, optimizer, range(4))
    train(reference, plain, range(4))
    for name, theta in reference.thetas().items():
        torch.testing.assert_close(model.get_parameter(name), theta)
    optimizer.prune(density=0.5)
    train(model, optimizer, range(4, 8))
    assert model.twin.weight is model.first.weight
    assert set(optimizer.masks()) == {"first.weight", "head.weight"}
    assert sum(int((weight != 0).sum()) for weight in optimizer.weights().values()) == 27
    assert (model.twin.weight[~optimizer.masks()["first.weight"]] == 0).all()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = nn.LSTM(6, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.lstm(x.view(-1, 1, 6))[0][:, -1])


class Attentive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True, add_bias_kv=True)
        self.encoder = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, dropout=0.0)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        x = x.view(4, -1, 6)
        x = self.encoder(self.attention(x, x, x, need_weights=False)[0])
        return self.head(x).view(-1, 3)


@pytest.mark.parametrize("kind", [Recurrent, Attentive])
def test_recurrent_and_attentive_layers(kind: type[nn.Module]) -> None:
    model = kind().double()
    optimizer = wrap(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    assert any("lstm" in name or "attention" in name for name in optimizer.masks())
    optimizer.reweight()
    reference = Explicit(model, omegas(optimizer))
    plain = torch.optim.AdamW(reference.parameters(), lr=0.01)
    train(model, optimizer, range(3))
    train(reference, plain, range(3))
    assert_same_theta(model, reference, rtol=1e-6)
    optimizer.prune(density=0.3)
    train(model, optimizer, range(3, 8))
    for name, mask in optimizer.masks().items():
        assert ((model.get_parameter(name) != 0) <= mask).all()
    model.eval()
    with torch.no_grad():
        first = loss(model, 9)
        assert torch.equal(first, loss(copy.deepcopy(model), 9))


def test_frozen_parameters_are_left_alone() -> None:
    model = make_model()
    model.fc1.weight.requires_grad_(False)
    before = model.fc1.weight.clone()
    optimizer = wrap(model)
    assert set(optimizer.masks()) == {"fc2.weight"}
    optimizer.reweight()
    train(model, optimizer, range(3))
    assert torch.equal(model.fc1.weight, before)


def test_a_layer_frozen_later_stays_as_it_is() -> None:
    model = make_model()
    optimizer = wrap(model)
    optimizer.reweight()
    train(model, optimizer, range(2))
    model.fc1.requires_grad_(False)
    optimizer.zero_grad()
    before = model.fc1.weight.clone()
    train(model, optimizer, range(2, 5))
    assert torch.equal(model.fc1.weight, before)


def test_groups_of_their_own_settings() -> None:
    model = make_model()

    def groups(params: list[nn.Parameter]) -> list[dict[str, Any]]:
        return [
            {"params": params[3:], "lr": 0.2},
            {"params": params[:3], "weight_decay": 0.1, "momentum": 0.5},
        ]

    optimizer = wrap(model, torch.optim.SGD(groups(list(model.parameters())), lr=0.05))
    optimizer.reweight()
    reference = Explicit(model, omegas(optimizer))
    plain = torch.optim.SGD(groups(list(reference.parameters())), lr=0.05)
    train(model, optimizer, range(6))
    train(reference, plain, range(6))
    assert_same_theta(model, reference)


def test_penalties_by_layer() -> None:
    model = make_model()
    penalties = {"fc1": ReweightedL1(0.1, relative=False), "*": ReweightedL1(9.0, relative=False)}
    weights = {name: theta.detach().clone() for name, theta in model.named_parameters()}
    optimizer = wrap(model, penalty=penalties, normalise=False)
    optimizer.reweight()
    found = omegas(optimizer)
    torch.testing.assert_close(found["fc1.weight"], weights["fc1.weight"].abs() + 0.1)
    torch.testing.assert_close(found["fc2.weight"], weights["fc2.weight"].abs() + 9.0)
    with pytest.raises(InputError, match=r"no penalty is given for fc2.weight"):
        wrap(make_model(), penalty={"fc1": ReweightedL1()})


# ---------------------------------------------------------------------- what cannot be wrapped


def test_an_optimizer_of_another_model_is_refused() -> None:
    other = torch.optim.SGD(make_model().parameters(), lr=0.1)
    with pytest.raises(InputError, match="does not hold fc1.weight.*exclude"):
        wrap(make_model(), other)


def test_a_model_with_nothing_to_prune_is_refused() -> None:
    model = nn.Sequential(nn.Embedding(4, 3), nn.LayerNorm(3))
    with pytest.raises(InputError, match="has nothing to prune.*belongs to Embedding"):
        wrap(model)


def test_a_layer_without_weights_is_refused() -> None:
    model = make_model()
    nn.init.zeros_(model.fc2.weight)
    with pytest.raises(InputError, match=r"fc2.weight has an RMS weight of 0.*exclude"):
        wrap(model)
    assert set(wrap(model, exclude=["fc2.weight"]).masks()) == {"fc1.weight"}
    nn.init.constant_(model.fc2.weight, torch.nan)
    with pytest.raises(InputError, match="fc2.weight has an RMS weight of nan"):
        wrap(model)
