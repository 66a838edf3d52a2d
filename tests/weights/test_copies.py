"""A copy of any model, which shares nothing with it."""

import warnings

import pytest
import torch
from torch import Tensor, nn

from asterism.weights.copies import copied


def legacy(layer: nn.Module, name: str = "weight") -> nn.Module:
    """With the weight norm that keeps a computed weight in the module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.weight_norm(layer, name)


@pytest.mark.filterwarnings("ignore:The tensor attributes? self.*_flat_weights")
@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), torch.randn(5, 4)),
        (legacy(nn.Linear(4, 3)), torch.randn(5, 4)),
        (legacy(nn.Conv1d(4, 3, 2)), torch.randn(5, 4, 6)),
        (legacy(nn.LSTM(4, 3, batch_first=True), "weight_hh_l0"), torch.randn(5, 2, 4)),
    ],
)
def test_a_copy_answers_as_the_model_and_shares_nothing(model: nn.Module, x: Tensor) -> None:
    def answer(each: nn.Module) -> Tensor:
        found = each.eval()(x)
        return found[0] if isinstance(found, tuple) else found

    answer(model).sum().backward()  # what is computed has a history now
    twin = copied(model)
    before = answer(twin)
    torch.testing.assert_close(before, answer(model))
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(2)
    torch.testing.assert_close(answer(twin), before)
