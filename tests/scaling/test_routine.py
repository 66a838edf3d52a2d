"""A routine re-weights, then cuts, at the steps that it says."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from asterism import InputError, ProximalReweighting, Routine, SparseOptimizer
from support.explicit import make_model, train


def nonzeros(optimizer: SparseOptimizer) -> int:
    return sum(int(weight.count_nonzero()) for weight in optimizer.weights().values())


def test_lam_ends_with_the_cut() -> None:
    model = make_model()
    routine = Routine(
        0.25, cut_at=3, reweight_every=2, algorithm=partial(ProximalReweighting, lam=0.1)
    )
    optimizer = routine.wrap(torch.optim.SGD(model.parameters(), lr=0.0), model)
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    seen = []
    for _ in range(5):
        optimizer.param_groups[0]["lr"] = 0.1
        optimizer.step()
        seen.append(float(model.fc1.weight.detach().abs().sum()))
    assert seen[0] > seen[1] > seen[2] > 0
    assert seen[2] == seen[3] == seen[4]
    assert nonzeros(optimizer) == 18


def test_the_routine_re_weights_then_cuts() -> None:
    model = make_model()
    routine = Routine(density=0.25, cut_at=4, reweight_every=2)
    optimizer = routine.wrap(torch.optim.AdamW(model.parameters(), lr=0.01), model)
    seen = []
    for step in range(7):
        train(model, optimizer, range(step, step + 1))
        seen.append((optimizer.iteration, nonzeros(optimizer)))
    assert seen == [(0, 72), (1, 72), (1, 72), (1, 18), (1, 18), (1, 18), (1, 18)]


@pytest.mark.parametrize("bad", [{"cut_at": 0}, {"reweight_every": 0}])
def test_a_routine_counts_from_one(bad: dict[str, int]) -> None:
    with pytest.raises(InputError, match="count steps, from 1 on"):
        Routine(**{"density": 0.1, "cut_at": 5, "reweight_every": 1, **bad})
