"""Codebooks that are learnt for a trained network, and the error of the file that holds them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from asterism import save
from asterism.experiments.data import load
from asterism.experiments.small_files import (
    Learning,
    bits_by_parameter,
    error_of_file,
    learn_codebooks,
)


def network() -> nn.Module:
    layers = [nn.Conv2d(1, 6, 5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(216, 10)]
    return nn.Sequential(*layers)


def test_bits_are_given_to_all_layers_or_one_by_one() -> None:
    assert bits_by_parameter(network(), [3], 6) == {
        "0.weight": 3,
        "0.bias": 6,
        "3.weight": 3,
        "3.bias": 6,
    }
    assert bits_by_parameter(network(), [4, 2], 6)["3.weight"] == 2
    with pytest.raises(ValueError, match="argument"):
        bits_by_parameter(network(), [4, 2, 1], 6)


def test_the_file_has_the_error_that_was_learnt(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data, model, errors = load("digits"), network(), []
    with torch.no_grad():
        model[3].weight *= torch.rand_like(model[3].weight) < 0.3
    zeros = model[3].weight == 0
    bits = bits_by_parameter(model, [2], 5)
    how = Learning(epochs=8, lr=0.1, batch_size=32)
    learn_codebooks(model, data, bits, how, 0, lambda epoch, error: errors.append((epoch, error)))
    assert [epoch for epoch, _ in errors] == list(range(1, 9))
    assert errors[-1][1] < 20
    assert len(model[3].weight.unique()) <= 5
    assert not model[3].weight[zeros].any()
    path = tmp_path / "few.asterism"
    save(model, path, example_inputs=data.train.images[:1], bits=bits)
    assert error_of_file(path, data.validation) == pytest.approx(errors[-1][1])
