"""A new model is told from a trained one by its weights alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from asterism.experiments.networks import lenet5, lenet300
from asterism.weights.initial import is_untrained
from support import small


@pytest.mark.parametrize("make", [lenet5, lenet300, small.untrained])
@pytest.mark.parametrize("seed", range(3))
def test_a_new_model_is_untrained(make, seed: int) -> None:
    torch.manual_seed(seed)
    assert is_untrained(make())


def test_a_few_steps_are_seen() -> None:
    model = small.untrained()
    small.task().fit(model, torch.optim.SGD(model.parameters(), lr=0.05), epochs=1)
    assert not is_untrained(model)


def test_a_trained_and_a_sparse_model_are_not_new() -> None:
    assert not is_untrained(small.trained())
    model = small.untrained()
    with torch.no_grad():
        model[0].weight[:, ::2] = 0
    assert not is_untrained(model)


def test_a_model_without_such_layers_is_not_judged() -> None:
    assert not is_untrained(nn.Embedding(100, 8))
    assert not is_untrained(nn.Linear(2, 2))
