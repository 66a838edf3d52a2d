"""The loop and the evaluation that two loaders make."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler

import asterism
from asterism.errors import InputError
from asterism.experiments.training import DivergedError
from asterism.storage import random_state
from support.small import loaders, make_data, task, trained


def test_the_learning_rate_rises_and_falls_within_each_call():
    model, rates = trained(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    optimizer.register_step_post_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
    task().fit(model, optimizer, epochs=2)
    assert len(rates) == 32
    top = rates.index(max(rates))
    assert 0.4 < rates[top] <= 0.5
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0 < rates[-1] < 0.02


def test_the_metric_weighs_batches_by_their_size():
    model = trained()
    _, valid = loaders()
    whole = asterism.supervised([], DataLoader(make_data(seed=4), batch_size=200))
    assert whole.evaluate(model) == pytest.approx(asterism.supervised([], valid).evaluate(model))


def test_evaluation_leaves_each_module_in_its_mode():
    model = trained().train()
    model[1].eval()
    task().evaluate(model)
    assert model.training
    assert not model[1].training


def test_several_inputs_go_to_the_model_and_the_last_is_the_target():
    batches = [(torch.ones(4, 2), torch.ones(4, 3), torch.zeros(4, dtype=torch.long))]
    whole = asterism.supervised(batches, batches)
    model = nn.Bilinear(2, 3, 2)
    whole.fit(model, torch.optim.SGD(model.parameters(), lr=1.0), epochs=20)
    assert whole.evaluate(model) == 100.0


def test_the_loaders_generators_are_found_once_each():
    own, sampling = torch.Generator(), torch.Generator()
    data = make_data()
    sampler = RandomSampler(data, generator=sampling)
    train = DataLoader(data, sampler=sampler, generator=own)
    assert asterism.supervised(train, train).generators == [own, sampling]
    state = random_state.capture([own])
    first = torch.rand(3, generator=own)
    random_state.restore(state, [own])
    assert torch.equal(torch.rand(3, generator=own), first)


def test_a_loss_that_is_not_finite_is_a_divergence():
    whole = asterism.supervised(*loaders(), loss=lambda outputs, targets: outputs.sum() / 0)
    model = trained()
    with pytest.raises(DivergedError, match="the loss is"):
        whole.fit(model, torch.optim.SGD(model.parameters(), lr=0.1), epochs=1)


def test_batches_of_another_shape_are_refused():
    whole = asterism.supervised([torch.ones(3)], [])
    with pytest.raises(InputError, match=r"must give \(inputs, targets\), found Tensor"):
        whole.fit(nn.Linear(3, 1), torch.optim.SGD([nn.Parameter(torch.ones(1))]), 1)
