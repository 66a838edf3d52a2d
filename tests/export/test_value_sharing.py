from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from asterism.errors import InputError
from asterism.export.value_sharing import assign, quantise_, share_values_


def sparse_model() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 3))
    with torch.no_grad():
        model[0].weight *= torch.rand(30, 20) < 0.3
    return model


@pytest.mark.parametrize(
    "make",
    [
        lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9),
        lambda params: torch.optim.AdamW(params, lr=0.01),
    ],
)
def test_entries_learn_and_their_weights_stay_together(make):
    model = sparse_model()
    inputs, labels = torch.randn(64, 20), torch.randint(0, 3, (64,))
    mask = model[0].weight != 0
    assignments = quantise_(model, {"0.weight": 3})
    optimizer = make(model.parameters())
    losses = []
    with share_values_(model, assignments):
        before = model[0].weight.detach().clone()
        for _ in range(30):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    after = model[0].weight.detach()
    assert losses[-1] < 0.98 * losses[0]
    assert (after != before)[mask].all()
    assert not after[~mask].any()
    assert len(after[mask].unique()) == 8
    assert torch.equal(assign(after) > 0, mask)
    model[0].weight.grad = None
    model(inputs).sum().backward()
    assert model[0].weight.grad[~mask].any(), "afterwards gradients are free again"


def test_an_entry_s_gradient_is_the_sum_of_its_weights_gradients():
    layer = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0, 2.0, 1.0]]))
    with share_values_(layer, {"weight": assign(layer.weight)}):
        layer(torch.tensor([[1.0, 10.0, 100.0, 1000.0]])).sum().backward()
    assert layer.weight.grad.tolist() == [[1001.0, 0.0, 100.0, 1001.0]]


def test_what_does_not_fit_is_named():
    model = sparse_model()
    with pytest.raises(InputError, match="no parameters 9.weight"):
        quantise_(model, {"9.weight": 3})
    with (
        pytest.raises(InputError, match=r"assignments of 0\.weight do not fit"),
        share_values_(model, {"0.weight": torch.zeros(2, 2, dtype=torch.long)}),
    ):
        pass
