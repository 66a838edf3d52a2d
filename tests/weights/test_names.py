"""Names of weights, and the patterns over them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from asterism import AffineScaling, InputError, ReweightedL1
from asterism.weights.names import check_patterns, layer, lookup, matches


def test_a_layer_is_named_after_its_weight() -> None:
    assert [layer(name) for name in ("a.conv1.weight", "lstm.weight_ih_l0", "weight")] == [
        "a.conv1",
        "lstm.weight_ih_l0",
        "weight",
    ]


def test_a_name_is_matched_whole() -> None:
    assert matches("fc1.weight", ["fc1"])
    assert not matches("fc10.weight", ["fc1"])
    assert not matches("encoder.fc1.weight", ["fc1", "encoder"])
    assert not matches("fc1.weight", [])


def test_lookup_takes_the_first_pattern_that_fits() -> None:
    table = {"fc1": 1, "fc*": 2}
    assert [lookup(table, name, "rate") for name in ("fc1.weight", "fc2.weight")] == [1, 2]
    with pytest.raises(InputError, match=r"no rate is given for conv\.weight: add a pattern"):
        lookup(table, "conv.weight", "rate")


def test_a_pattern_that_fits_nothing_is_named_beside_what_there_is() -> None:
    check_patterns(["fc*", "conv"], ["fc1.weight", "conv.weight"])
    with pytest.raises(InputError, match=r"pattern 'fc9'; there are fc1\.weight, conv\.weight"):
        check_patterns(["fc9"], ["fc1.weight", "conv.weight"])


def test_a_penalty_for_a_layer_that_is_not_there_is_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(InputError, match="no layer matches the pattern 'fc1'"):
        AffineScaling(sgd, model, {"fc1": ReweightedL1(), "*": ReweightedL1()})
