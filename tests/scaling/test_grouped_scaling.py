"""Groups in training: one omega each, one proximal step, cut whole, exact zeros for good."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from asterism import (
    AffineScaling,
    Exact,
    GeometricTau,
    Greedy,
    Group,
    HardThreshold,
    Heads,
    InputError,
    Noise,
    ProximalReweighting,
    ReweightedL1,
    ReweightedL2,
    Splicing,
)
from asterism.scaling.initialisers import Initialiser
from asterism.scaling.penalties import Penalty
from asterism.weights.metrics import live_units
from support.explicit import (
    Explicit,
    assert_equal,
    assert_exact_zeros,
    assert_same_theta,
    make_model,
    nonzeros,
    omegas,
    train,
    wrap,
)

INITIALISERS = [Greedy(), Noise(0.1), Exact()]
SETTINGS: dict[str, dict[str, Any]] = {
    **{f"plain, {start}": {"initialiser": start} for start in INITIALISERS},
    **{f"proximal in q, {start}": {"initialiser": start, "lam": 0.05} for start in INITIALISERS},
    "proximal in theta": {
        "lam": 0.05,
        "algorithm": ProximalReweighting,
        "reweight_every": "round",
    },
    "at each step": {"lam": 0.05, "algorithm": ProximalReweighting},
}


def one_by_one(shape: torch.Size) -> Tensor:
    return torch.arange(shape.numel()).view(shape)


def constant_within_rows(tensor: Tensor) -> bool:
    return bool((tensor == tensor[:, :1]).all())


# ---------------------------------------------------------------------- the same algebra


@pytest.mark.parametrize("penalty", [ReweightedL1(0.3), ReweightedL2(0.3)], ids=repr)
@pytest.mark.parametrize("settings", SETTINGS)
def test_groups_of_one_are_single_weights(penalty: Penalty, settings: str) -> None:
    models = [make_model(), make_model()]
    masks = []
    for model, chosen in zip(models, (penalty, Group(penalty, by=one_by_one)), strict=True):
        optimizer = wrap(model, penalty=chosen, **SETTINGS[settings])
        optimizer.reweight()
        train(model, optimizer, range(4))
        optimizer.prune(density=0.4)
        train(model, optimizer, range(4, 8))
        optimizer.reweight()
        train(model, optimizer, range(8, 10))
        masks.append(optimizer.masks())
    for name, mask in masks[0].items():
        assert torch.equal(masks[1][name], mask)
    for name, theta in models[0].state_dict().items():
        torch.testing.assert_close(models[1].state_dict()[name], theta, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("initialiser", INITIALISERS, ids=repr)
def test_omega_is_one_number_per_group_and_training_is_in_q_space(initialiser: Initialiser) -> None:
    model = make_model()
    before = model.fc1.weight.detach().clone()
    optimizer = wrap(model, penalty=Group(ReweightedL1(0.3)), initialiser=initialiser)
    optimizer.reweight()
    omega = omegas(optimizer)["fc1.weight"]
    assert constant_within_rows(omega)
    rms = before.square().mean(1).sqrt()
    expected = rms + 0.3 * before.square().mean().sqrt()
    torch.testing.assert_close(omega[:, 0] / omega[0, 0], expected / expected[0])
    reference = Explicit(model, omegas(optimizer))
    plain = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9)
    train(model, optimizer, range(5))
    train(reference, plain, range(5))
    assert_same_theta(model, reference)


def still_step(optimizer: AffineScaling) -> None:
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.zeros_like(param)
    optimizer.step()


def test_the_proximal_step_shrinks_the_rms_of_each_group() -> None:
    """By lr·lam·psi/psi(0), with psi of the group as it is now."""
    model = make_model()
    optimizer = wrap(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        penalty=Group(ReweightedL1(tau=0.3, relative=False), by="row"),
        algorithm=ProximalReweighting,
        lam=1.5,
    )
    expected = model.fc1.weight.detach().clone()
    for _ in range(3):
        still_step(optimizer)
        rms = expected.square().mean(1, keepdim=True).sqrt()
        amount = 0.1 * 1.5 * 0.3 / (rms + 0.3)
        expected = torch.where(rms > amount, expected * (1 - amount / rms), 0.0)
    torch.testing.assert_close(model.fc1.weight.detach(), expected)
    dead = (expected == 0).all(1)
    assert 0 < int(dead.sum()) < 8
    assert not (expected[~dead] == 0).any()


def test_in_q_space_what_stands_at_pruned_weights_does_not_count() -> None:
    """The inner optimizer may leave anything there; the norm of a group must not see it."""
    model = make_model()
    optimizer = wrap(
        model, torch.optim.SGD(model.parameters(), lr=0.1), penalty=Group(ReweightedL1(0.3)), lam=1
    )
    optimizer.reweight()
    optimizer.prune(masks={"fc1.weight": torch.arange(48).view(8, 6) % 3 == 0})
    theta, omega = model.fc1.weight.detach().clone(), omegas(optimizer)["fc1.weight"]
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    model.fc1.weight.grad[omega == 0] = 1e6
    optimizer.step()
    q = torch.where(omega == 0, 0.0, theta / omega)
    rms = q.square().mean(1, keepdim=True).sqrt()
    torch.testing.assert_close(model.fc1.weight.detach(), theta * (1 - 0.1 / rms).clamp(min=0))
    assert_exact_zeros(model, optimizer)


def test_a_hard_threshold_cuts_whole_groups_and_latent_ones_return() -> None:
    model = make_model()
    optimizer = wrap(model, penalty=Group(HardThreshold(1.0), by="filter"))
    optimizer.reweight()
    alive = omegas(optimizer)["fc1.weight"] != 0
    assert constant_within_rows(alive)
    assert 0 < int(alive.sum()) < alive.numel()
    model = make_model()
    optimizer = wrap(model, penalty=Group(HardThreshold(1.0), by="filter"), algorithm=Splicing)
    seen = set()
    for step in range(30):
        optimizer.reweight()
        mask = optimizer.masks()["fc1.weight"]
        assert constant_within_rows(mask)
        seen.add(tuple(mask[:, 0].tolist()))
        train(model, optimizer, range(step, step + 1))
    assert any(
        b and not a for one in seen for other in seen for a, b in zip(one, other, strict=True)
    )


# ---------------------------------------------------------------------- the cut


@pytest.mark.filterwarnings("ignore:the cut would leave nothing")
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("score", ["lamp", "magnitude"])
def test_whole_groups_go_and_stay_gone(settings: str, score: str) -> None:
    model = make_model()
    optimizer = wrap(model, penalty=Group(ReweightedL1(0.3)), **SETTINGS[settings])
    optimizer.reweight()
    train(model, optimizer, range(3))
    optimizer.prune(density=0.5, score=score)
    masks = optimizer.masks()
    assert all(constant_within_rows(mask) for mask in masks.values())
    kept = sum(int(mask.sum()) for mask in masks.values())
    assert 36 - 8 < kept <= 36  # 8 weights in a filter of fc2, 6 in one of fc1
    train(model, optimizer, range(3, 10))
    optimizer.reweight()
    optimizer.flatten()
    train(model, optimizer, range(10, 20))
    assert_exact_zeros(model, optimizer)
    assert live_units(model.fc1.weight)[0] == int(masks["fc1.weight"][:, 0].sum())


def test_a_density_by_layer_keeps_the_groups_of_largest_norm() -> None:
    model = make_model()
    norms = model.fc1.weight.detach().norm(dim=1)
    columns = model.fc2.weight.detach().norm(dim=0)
    penalty = {"fc1": Group(ReweightedL1(), by="filter"), "*": Group(ReweightedL1(), by="channel")}
    optimizer = wrap(model, penalty=penalty)
    optimizer.prune(density={"fc1": 0.5, "fc2": 0.3})
    rows = optimizer.masks()["fc1.weight"].all(1)
    assert set(rows.nonzero().flatten().tolist()) == set(norms.topk(4).indices.tolist())
    kept = optimizer.masks()["fc2.weight"]  # 24 · 0.3 = 7.2 weights: 2 columns of 3 fit
    assert set(kept.all(0).nonzero().flatten().tolist()) == set(columns.topk(2).indices.tolist())
    assert int(kept.sum()) == 6


def test_groups_and_single_weights_share_one_budget() -> None:
    model = make_model()
    optimizer = wrap(model, penalty={"fc1": Group(ReweightedL1()), "*": ReweightedL1()})
    optimizer.prune(density=0.5)
    masks = optimizer.masks()
    assert constant_within_rows(masks["fc1.weight"])
    assert not constant_within_rows(masks["fc2.weight"])
    assert 36 - 6 < sum(int(mask.sum()) for mask in masks.values()) <= 36


def test_a_second_cut_goes_on_from_the_first() -> None:
    model = make_model()
    optimizer = wrap(model, penalty=Group(ReweightedL1()))
    before = optimizer.masks()
    for density in (0.8, 0.7, 0.4):
        optimizer.prune(density=density, per_layer=True)
        now = optimizer.masks()
        assert all(bool((now[name] <= before[name]).all()) for name in now)
        before = now
    with pytest.raises(InputError, match="pruned weights do not come back"):
        optimizer.prune(density=0.9)


def test_ties_go_to_the_earlier_group() -> None:
    model = make_model()
    nn.init.ones_(model.fc1.weight)
    optimizer = wrap(model, penalty=Group(ReweightedL1()))
    optimizer.prune(density={"fc1": 0.25})
    assert optimizer.masks()["fc1.weight"].all(1).tolist() == [True] * 2 + [False] * 6


def test_a_threshold_cuts_groups_by_their_rms() -> None:
    model = make_model()
    rms = model.fc1.weight.detach().square().mean(1).sqrt()
    level = float(rms.median())
    optimizer = wrap(model, penalty=Group(ReweightedL1()))
    optimizer.prune(threshold={"fc1": level})
    assert torch.equal(optimizer.masks()["fc1.weight"].all(1), rms > level)
    with pytest.warns(UserWarning, match="nothing of fc1.weight: the largest group stays"):
        optimizer.prune(threshold={"fc1": 1e3})
    assert optimizer.masks()["fc1.weight"].all(1).nonzero().item() == int(rms.argmax())


def test_no_layer_loses_its_last_group() -> None:
    model = make_model()
    with torch.no_grad():
        model.fc2.weight.mul_(1e-6)
    optimizer = wrap(model, penalty=Group(ReweightedL1()))
    with pytest.warns(UserWarning, match="nothing of fc2.weight: the largest group stays"):
        optimizer.prune(density=0.3, score="magnitude")
    assert nonzeros(optimizer) == 8 + 2 * 6  # one filter of fc2, and what fits of fc1 in 21
    with pytest.raises(InputError, match="12 weights are too few for one whole group in each"):
        optimizer.prune(density=12 / 72, score="magnitude")


def test_zeros_that_are_frozen_are_single_weights() -> None:
    model = make_model()
    with torch.no_grad():
        model.fc1.weight[2, :3] = 0.0
    optimizer = wrap(model, penalty=Group(ReweightedL1()), freeze_zeros=True)
    assert optimizer.masks()["fc1.weight"][2].tolist() == [False] * 3 + [True] * 3


# ---------------------------------------------------------------------- saving


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_saved_run_goes_on_bit_by_bit(settings: str) -> None:
    options = {"penalty": Group(ReweightedL2(0.3))} | SETTINGS[settings]
    options["anneal"] = GeometricTau(0.5)
    model = make_model()
    optimizer = wrap(model, **options)
    optimizer.reweight()
    train(model, optimizer, range(3))
    optimizer.prune(density=0.6)
    other = copy.deepcopy(model)
    resumed = wrap(other, **options)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each, wrapper in ((model, optimizer), (other, resumed)):
        wrapper.reweight()
        train(each, wrapper, range(3, 6))
        wrapper.prune(density=0.4)
        train(each, wrapper, range(6, 9))
    assert_equal(model, other)
    assert_exact_zeros(other, resumed)


# ---------------------------------------------------------------------- layers of every kind


def test_a_head_dies_whole() -> None:
    model = nn.ModuleDict({"attention": nn.MultiheadAttention(8, 4, batch_first=True)}).double()
    optimizer = AffineScaling(
        torch.optim.SGD(model.parameters(), lr=0.1), model, Group(ReweightedL1(), by="head")
    )
    optimizer.prune(density=0.5, per_layer=True)
    inside = optimizer.masks()["attention.in_proj_weight"].view(3, 4, 2, 8)
    assert constant_within_rows(inside.transpose(0, 1).reshape(4, -1))
    assert int(inside[0, :, 0, 0].sum()) == 2
    outside = optimizer.masks()["attention.out_proj.weight"].view(8, 4, 2)
    assert constant_within_rows(outside.transpose(0, 1).reshape(4, -1))


def test_heads_of_plain_projections_by_pattern() -> None:
    model = make_model()
    penalty = {
        "fc1": Group(ReweightedL1(), by=Heads(4)),
        "fc2": Group(ReweightedL1(), by=Heads(4, dim=1)),
    }
    optimizer = wrap(model, penalty=penalty)
    optimizer.prune(density=0.5, per_layer=True)
    assert constant_within_rows(optimizer.masks()["fc1.weight"].view(4, -1))
    assert constant_within_rows(optimizer.masks()["fc2.weight"].T.reshape(4, -1))
    with pytest.raises(InputError, match="fc1.weight belongs to no nn.MultiheadAttention"):
        wrap(make_model(), penalty=Group(ReweightedL1(), by="head"))


# ---------------------------------------------------------------------- planted groups


def recover(penalty: Penalty, **options: Any) -> tuple[Tensor, Tensor]:
    """60 unknowns in 12 rows of 5, of which 2 rows are there, behind 30 equations."""
    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn(30, 60, generator=generator, dtype=torch.float64) / 30**0.5
    planted = torch.zeros(12, 5, dtype=torch.float64)
    planted[[2, 7]] = torch.randn(2, 5, generator=generator, dtype=torch.float64).sign()
    target = matrix @ planted.flatten()
    model = nn.Linear(5, 12, bias=False, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_((torch.linalg.pinv(matrix) @ target).view(12, 5))
    optimizer = wrap(model, penalty=penalty, **options)
    for _ in range(8):
        optimizer.reweight()
        for _ in range(150):
            optimizer.zero_grad()
            misfit = matrix @ model.weight.flatten() - target
            (misfit.square().sum() / 2).backward()
            optimizer.step()
    return model.weight.detach(), planted


AFFINE = {"anneal": GeometricTau(0.3, floor=1e-6)}
PROXIMAL = {"algorithm": ProximalReweighting, "lam": 0.05}


@pytest.mark.parametrize("options", [AFFINE, PROXIMAL], ids=["affine scaling", "proximal"])
def test_planted_groups_are_recovered_and_single_weights_do_worse(options: dict[str, Any]) -> None:
    def error(penalty: Penalty) -> float:
        found, planted = recover(penalty, **options)
        return float((found - planted).norm() / planted.norm())

    assert error(Group(ReweightedL1(tau=1.0), by="row")) < 0.01
    assert error(ReweightedL1(tau=1.0)) > 0.05


def test_the_proximal_form_leaves_exactly_the_planted_rows() -> None:
    found, planted = recover(Group(ReweightedL1(tau=1.0), by="row"), **PROXIMAL)
    assert torch.equal(found.any(1), planted.any(1))
