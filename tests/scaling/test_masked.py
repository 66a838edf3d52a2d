"""A plain optimizer whose zeros stay."""

from __future__ import annotations

import pytest
import torch

from asterism import AffineScaling, InputError, Masked, ProximalReweighting, ReweightedL1, Splicing
from support.explicit import assert_equal, assert_exact_zeros, make_model, nonzeros, train


def masked(freeze_zeros: bool = True) -> tuple[torch.nn.Sequential, Masked]:
    model = make_model()
    with torch.no_grad():
        model.fc1.weight[::2] = 0.0
    adam = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, Masked(adam, model, freeze_zeros=freeze_zeros)


def test_the_zeros_that_are_there_stay() -> None:
    model, optimizer = masked()
    train(model, optimizer, range(5))
    assert nonzeros(optimizer) == 48
    assert_exact_zeros(model, optimizer)
    optimizer.prune(density=0.2)
    optimizer.flatten()
    train(model, optimizer, range(5, 8))
    assert nonzeros(optimizer) == 14


def test_without_zeros_it_is_the_inner_optimizer() -> None:
    (model, optimizer), (other, _) = masked(freeze_zeros=False), masked()
    train(model, optimizer, range(5))
    train(other, torch.optim.AdamW(other.parameters(), lr=0.01), range(5))
    assert_equal(model, other)
    assert nonzeros(optimizer) == 72


def test_a_state_saved_by_affine_scaling_that_never_re_weighted_loads() -> None:
    """As checkpoints of LWC and of dense training were once written."""
    model, optimizer = masked()
    adam = torch.optim.AdamW(model.parameters(), lr=0.01)
    before = AffineScaling(adam, model, ReweightedL1(), freeze_zeros=True)
    train(model, before, range(3))
    assert before.state_dict()["state"][0].keys() == optimizer.state_dict()["state"][0].keys() | {
        "step",
        "exp_avg",
        "exp_avg_sq",
    }
    optimizer.load_state_dict(before.state_dict())
    assert optimizer.steps == 3
    train(model, optimizer, range(3, 5))
    assert_exact_zeros(model, optimizer)


@pytest.mark.parametrize(
    ("removed", "instead"),
    [
        ({"affine": False}, ProximalReweighting),
        ({"reweight_every": "step"}, ProximalReweighting),
        ({"latent": True}, Splicing),
    ],
    ids=str,
)
def test_an_argument_that_is_gone_names_the_class_to_use(removed, instead: type) -> None:
    model = make_model()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(InputError, match=f"no '{next(iter(removed))}'.*use {instead.__name__}"):
        AffineScaling(sgd, model, ReweightedL1(), **removed)
    with pytest.raises(TypeError, match="unexpected keyword argument 'lamda'"):
        AffineScaling(sgd, model, ReweightedL1(), lamda=0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", [AffineScaling, ProximalReweighting, Splicing, Masked])
def test_each_algorithm_has_only_the_arguments_that_it_uses(algorithm: type) -> None:
    names = set(algorithm.__init__.__code__.co_varnames)  # type: ignore[misc]
    own = {
        AffineScaling: {"initialiser", "normalise", "on_reweight", "seed", "lam", "anneal"},
        ProximalReweighting: {"reweight_every", "lam", "anneal"},
        Splicing: set(),
        Masked: set(),
    }
    everything = set().union(*own.values())
    assert names & everything == own[algorithm]
