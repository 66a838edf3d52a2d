"""Saving, loading and copying: a run that stops and goes on is the run that never stopped."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

from asterism import (
    AffineScaling,
    ChartrandYin,
    Focuss,
    GeometricTau,
    HardThreshold,
    InputError,
    InTurn,
    Noise,
    ProximalReweighting,
    ReweightedL1,
    Splicing,
)
from support.explicit import (
    ELEMENTWISE,
    assert_equal,
    loss,
    make_model,
    omegas,
    train,
    train_with_closure,
    wrap,
)

single_process = pytest.mark.filterwarnings(
    "ignore:torch.distributed is disabled", "ignore:TypedStorage is deprecated"
)

SETTINGS: dict[str, dict[str, Any]] = {
    "noise, tau by half": {
        "initialiser": Noise(0.1),
        "anneal": GeometricTau(0.5),
        "layers": InTurn(),
    },
    "noise, tau when settled": {"initialiser": Noise(0.1), "anneal": ChartrandYin(forced=False)},
    "settled at once": {
        "penalty": Focuss(0.5, tau=0.5),
        "anneal": ChartrandYin(forced=False, floor=1e-3),
        "on_reweight": "rescale",
    },
    "plain metric": {"algorithm": ProximalReweighting, "lam": 0.01, "reweight_every": "round"},
    "each step": {
        "algorithm": ProximalReweighting,
        "lam": lambda step: 0.001 * step,
    },
    "latent": {"penalty": HardThreshold(0.5, 0.8), "algorithm": Splicing},
}


def start(settings: str, make: str = "AdamW") -> tuple[nn.Sequential, AffineScaling]:
    model = make_model()
    return model, wrap(model, ELEMENTWISE[make](model.parameters()), **SETTINGS[settings])


def go_on(model: nn.Module, optimizer: AffineScaling) -> None:
    train(model, optimizer, range(100, 104))
    optimizer.reweight()
    train(model, optimizer, range(104, 108))
    optimizer.reweight()
    train(model, optimizer, range(108, 110))


def assert_same_end(
    model: nn.Module, optimizer: AffineScaling, other: nn.Module, other_optimizer: AffineScaling
) -> None:
    assert_equal(model, other)
    for name, omega in omegas(optimizer).items():
        assert torch.equal(omega, omegas(other_optimizer)[name])
    ours, theirs = optimizer.state_dict()["state"], other_optimizer.state_dict()["state"]
    assert ours.keys() == theirs.keys()
    for key, entry in ours.items():
        assert entry.keys() == theirs[key].keys()
        for name, value in entry.items():
            torch.testing.assert_close(value, theirs[key][name], rtol=0, atol=0, msg=name)


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# ---------------------------------------------------------------------- state_dict


@pytest.mark.parametrize("make", ["SGD", "SGD momentum", "AdamW"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_resumed_run_is_the_same_bit_by_bit(settings: str, make: str) -> None:
    model, optimizer = start(settings, make)
    optimizer.reweight()
    train(model, optimizer, range(4))
    if settings != "latent":
        optimizer.prune(density=0.6)
    train(model, optimizer, range(4, 7))
    optimizer.reweight()  # saved between a re-weighting and the step that follows it
    saved = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    go_on(model, optimizer)

    resumed, other = start(settings, make)
    resumed.load_state_dict(saved["model"])
    other.load_state_dict(saved["optimizer"])
    assert other.iteration == 2
    assert other.steps == 7
    go_on(resumed, other)
    assert_same_end(model, optimizer, resumed, other)


def test_tau_is_resumed_where_it_was() -> None:
    _, optimizer = start("noise, tau by half")
    for _ in range(4):  # in turn: each layer twice
        optimizer.reweight()
    saved = optimizer.state_dict()["state"]
    assert [float(saved[key]["asterism_tau"]) for key in (0, 2)] == pytest.approx([0.075, 0.075])
    _, other = start("noise, tau by half")
    other.load_state_dict(optimizer.state_dict())
    assert float(other.state_dict()["state"][0]["asterism_tau"]) == pytest.approx(0.075)


def test_a_state_goes_back_to_an_earlier_one() -> None:
    """As after a divergence: the same optimizer takes an old state, and its latent q with it."""
    model, optimizer = start("latent")
    optimizer.reweight()
    train(model, optimizer, range(4))
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    go_on(model, optimizer)
    end = copy.deepcopy(model)
    optimizer.flatten()
    train(model, optimizer, range(3))
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    go_on(model, optimizer)
    assert_equal(model, end)


def test_a_flattened_state_resumes_without_latent_weights() -> None:
    model, optimizer = start("latent")
    optimizer.reweight()
    train(model, optimizer, range(4))
    optimizer.flatten()
    saved = through_a_file([model.state_dict(), optimizer.state_dict()])
    train(model, optimizer, range(4, 9))
    resumed, other = start("latent")
    resumed.load_state_dict(saved[0])
    other.load_state_dict(saved[1])
    train(resumed, other, range(4, 9))
    assert_same_end(model, optimizer, resumed, other)
    other.prune(density=0.1)


def test_the_keys_are_the_same_at_all_times() -> None:
    model, optimizer = start("noise, tau when settled")

    def keys() -> set[tuple[int, str]]:
        entries = optimizer.state_dict()["state"]
        return {(key, name) for key, entry in entries.items() for name in entry}

    train(model, optimizer, range(1))
    before = keys()
    optimizer.reweight()
    assert keys() == before
    optimizer.prune(density=0.5)
    assert keys() == before
    optimizer.flatten()
    assert keys() == before


def test_lbfgs_resumes() -> None:
    def make() -> tuple[nn.Sequential, AffineScaling]:
        model = make_model()
        return model, wrap(model, torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3))

    model, optimizer = make()
    optimizer.reweight()
    train_with_closure(model, optimizer, range(3))
    saved = through_a_file([model.state_dict(), optimizer.state_dict()])
    train_with_closure(model, optimizer, range(3, 6))
    resumed, other = make()
    resumed.load_state_dict(saved[0])
    other.load_state_dict(saved[1])
    train_with_closure(resumed, other, range(3, 6))
    assert_equal(model, resumed)


# ---------------------------------------------------------------------- states that do not fit


def refused(optimizer: AffineScaling, state: Any, message: str) -> None:
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(InputError, match=message):
        optimizer.load_state_dict(state)
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    for key, entry in before["state"].items():
        for name, value in entry.items():
            torch.testing.assert_close(after["state"][key][name], value, rtol=0, atol=0)


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    model, optimizer = start("noise, tau when settled")
    optimizer.reweight()
    train(model, optimizer, range(3))

    plain = torch.optim.AdamW(model.parameters(), lr=0.01)
    refused(optimizer, plain.state_dict(), "nothing of asterism: it is that of another")

    wider = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    state = wrap(wider, anneal=ChartrandYin(forced=False)).state_dict()
    refused(optimizer, state, r"fc1.weight has no omega of shape \(8, 6\)")

    deeper = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(3, 3)).double()
    refused(optimizer, wrap(deeper).state_dict(), "has 6 parameters, the optimizer has 4")

    _, other = start("noise, tau by half")
    refused(optimizer, other.state_dict(), "no previous of shape")

    narrower = wrap(make_model(), anneal=ChartrandYin(forced=False), include=["fc1"])
    refused(optimizer, narrower.state_dict(), "saved state of fc2.weight has no")
    refused(narrower, optimizer.state_dict(), "same include and exclude")

    broken = copy.deepcopy(optimizer.state_dict())
    del broken["state"][2]["asterism_iteration"]
    refused(optimizer, broken, "fc2.weight is incomplete")


# ---------------------------------------------------------------------- copies


def test_the_models_keys_are_unchanged() -> None:
    model = make_model()
    keys = list(model.state_dict())
    modules = [type(module) for module in model.modules()]
    optimizer = wrap(model)
    optimizer.reweight()
    optimizer.prune(density=0.5)
    assert list(model.state_dict()) == keys
    assert [type(module) for module in model.modules()] == modules
    assert not any(module._forward_pre_hooks for module in model.modules())


def by_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, by_pickle])
@pytest.mark.parametrize("settings", [name for name in SETTINGS if name != "each step"])
def test_model_and_optimizer_copied_together_go_on_the_same(settings: str, duplicate: Any) -> None:
    model, optimizer = start(settings)
    optimizer.reweight()
    train(model, optimizer, range(4))
    optimizer.reweight()
    twin, other = duplicate((model, optimizer))
    assert other.weights()["fc1.weight"] is twin.fc1.weight
    go_on(model, optimizer)
    go_on(twin, other)
    assert_same_end(model, optimizer, twin, other)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, by_pickle])
def test_a_copy_takes_its_own_steps_with_a_scheduler_on_the_original(duplicate: Any) -> None:
    """Schedulers put a `step` on the instance which holds on to the original."""
    model, optimizer = start("noise, tau by half")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    train(model, optimizer, range(2))
    twin, other = duplicate((model, optimizer))
    train(twin, other, range(2, 4))
    assert (optimizer.steps, other.steps) == (2, 4)
    assert not torch.equal(model.fc1.weight, twin.fc1.weight)
    scheduler.step()
    train(model, optimizer, range(2, 3))


def test_a_copy_of_the_model_alone_is_an_ordinary_model() -> None:
    model, optimizer = start("noise, tau by half")
    optimizer.reweight()
    optimizer.prune(density=0.4)
    twin = by_pickle(copy.deepcopy(model))
    assert_equal(model, twin)
    train(twin, torch.optim.SGD(twin.parameters(), lr=0.1), range(2))
    assert (twin.fc1.weight != 0).all()


# ---------------------------------------------------------------------- distributed checkpoints


def save(model: nn.Module, optimizer: AffineScaling, folder: Path, **options: Any) -> None:
    model_state, state = get_state_dict(model, optimizer, options=StateDictOptions(**options))
    dcp.save({"model": model_state, "optimizer": state}, checkpoint_id=folder, no_dist=True)


def load(model: nn.Module, optimizer: AffineScaling, folder: Path, **options: Any) -> None:
    model_state, state = get_state_dict(model, optimizer, options=StateDictOptions(**options))
    states = {"model": model_state, "optimizer": state}
    dcp.load(states, checkpoint_id=folder, no_dist=True)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=states["model"],
        optim_state_dict=states["optimizer"],
        options=StateDictOptions(**options),
    )


@single_process
@pytest.mark.parametrize("make", ["SGD", "SGD momentum", "AdamW"])
@pytest.mark.parametrize("settings", ["noise, tau when settled", "plain metric", "latent"])
def test_a_distributed_checkpoint_resumes_bit_by_bit(
    settings: str, make: str, tmp_path: Path
) -> None:
    model, optimizer = start(settings, make)
    optimizer.reweight()
    train(model, optimizer, range(4))
    optimizer.reweight()
    optimizer.zero_grad()
    save(model, optimizer, tmp_path)
    assert optimizer.steps == 4  # saving takes no step of its own
    go_on(model, optimizer)

    resumed, other = start(settings, make)
    load(resumed, other, tmp_path)
    go_on(resumed, other)
    assert_same_end(model, optimizer, resumed, other)


@single_process
def test_saving_before_the_first_step_changes_nothing(tmp_path: Path) -> None:
    model, optimizer = start("noise, tau by half")
    optimizer.reweight()
    before = copy.deepcopy(model)
    save(model, optimizer, tmp_path)
    assert_equal(model, before)
    assert optimizer.steps == 0


@single_process
def test_a_flattened_state_loads_into_a_flattened_optimizer(tmp_path: Path) -> None:
    model, optimizer = start("latent")
    optimizer.reweight()
    train(model, optimizer, range(4))
    optimizer.flatten()
    save(model, optimizer, tmp_path)
    train(model, optimizer, range(4, 8))
    resumed, other = start("latent")
    other.flatten()  # the template: without latent weights, as the checkpoint
    load(resumed, other, tmp_path)
    train(resumed, other, range(4, 8))
    assert_same_end(model, optimizer, resumed, other)


@single_process
def test_the_option_that_drops_our_state_is_refused(tmp_path: Path) -> None:
    model, optimizer = start("noise, tau by half")
    train(model, optimizer, range(1))
    save(model, optimizer, tmp_path, flatten_optimizer_state_dict=True)
    with pytest.raises(InputError, match="loaded with flatten_optimizer_state_dict=True"):
        load(model, optimizer, tmp_path, flatten_optimizer_state_dict=True)


def test_a_real_step_with_a_learning_rate_of_zero_counts() -> None:
    model = make_model()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9))
    optimizer.reweight()
    loss(model, 0).backward()
    omega = omegas(optimizer)["fc1.weight"]
    gradient = model.fc1.weight.grad.clone()
    optimizer.step()
    assert optimizer.steps == 1
    torch.testing.assert_close(
        optimizer.state[model.fc1.weight]["momentum_buffer"], gradient * omega
    )


def test_loading_restores_the_penalty_for_the_next_reweighting() -> None:
    model, optimizer = start("noise, tau by half")
    optimizer.reweight()
    other_model = make_model()
    other = wrap(
        other_model,
        ELEMENTWISE["AdamW"](other_model.parameters()),
        penalty=ReweightedL1(tau=99.0),
        **SETTINGS["noise, tau by half"],
    )
    other_model.load_state_dict(model.state_dict())
    other.load_state_dict(optimizer.state_dict())
    for each in (optimizer, other):
        each.reweight()
        each.reweight()
    assert_same_end(model, optimizer, other_model, other)
