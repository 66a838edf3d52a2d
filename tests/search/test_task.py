"""The loop and the evaluation that two loaders make."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler

import asterism
from asterism.errors import InputError
from asterism.experiments.training import DivergedError
from asterism.search.task import supervised
from asterism.storage import random_state
from support.small import loaders, make_data, task, trained


def test_the_learning_rate_rises_and_falls_within_each_call():
    model, rates = trained(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    optimizer.register_step_post_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
    task().fit(model, optimizer, epochs=4)
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


def test_batches_may_be_of_numpy() -> None:
    x = np.random.default_rng(0).standard_normal((64, 4))
    batches = [(x, x[:, :3].argmax(1))]
    whole = asterism.supervised(batches, batches)
    model = nn.Linear(4, 3)
    whole.fit(model, torch.optim.SGD(model.parameters(), lr=1.0), epochs=200)
    assert whole.evaluate(model) > 90


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


class Named(nn.Module):
    """A model as Hugging Face's: inputs by name, an output with logits."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, values: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.linear(values * attention_mask))


def named_batches(label: str = "labels") -> list[dict[str, Tensor]]:
    values = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    whole = {"values": values, "attention_mask": torch.ones(64, 4), label: values[:, :3].argmax(1)}
    return [{name: each[i : i + 16] for name, each in whole.items()} for i in range(0, 64, 16)]


@pytest.mark.parametrize("label", ["labels", "label", "targets"])
def test_a_batch_may_be_a_dict(label: str) -> None:
    torch.manual_seed(0)
    model, batches = Named(), named_batches(label)
    whole = supervised(batches, batches)
    whole.fit(model, torch.optim.SGD(model.parameters(), lr=1.0), epochs=30)
    assert whole.evaluate(model) > 90
    assert whole.example_inputs(model).keys() == {"values", "attention_mask"}
    assert label in batches[0], "the loader's own batch is left whole"


def test_a_dict_without_labels_names_what_it_has() -> None:
    batches = named_batches("answers")
    with pytest.raises(
        InputError, match="a dict of values, attention_mask, answers without labels"
    ):
        supervised(batches, batches).evaluate(Named())


def test_a_model_of_dicts_is_made_sparse() -> None:
    torch.manual_seed(0)
    model, batches = Named(), named_batches()
    whole = supervised(batches, batches)
    whole.fit(model, torch.optim.SGD(model.parameters(), lr=1.0), epochs=30)
    result = asterism.sparsify(model, whole, max_drop=5.0, max_epochs=20)
    assert result.best.density < 1


def test_amp_computes_in_bfloat16_and_keeps_the_weights() -> None:
    seen = []
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    batches = [(inputs, inputs[:, :3].argmax(1))]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(outputs.dtype)
        return nn.functional.cross_entropy(outputs, targets)

    model = nn.Linear(4, 3)
    whole = supervised(batches, batches, loss, amp=True)
    whole.fit(model, torch.optim.SGD(model.parameters(), lr=0.5), epochs=50)
    assert set(seen) == {torch.bfloat16}
    assert model.weight.dtype == torch.float32
    assert whole.evaluate(model) > 80
