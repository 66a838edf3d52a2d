"""An ordinary optimizer around an ordinary model: what a training loop does with both."""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from asterism import (
    AffineScaling,
    HardThreshold,
    InputError,
    ProximalReweighting,
    ReweightedL1,
    Splicing,
)
from support.explicit import (
    Explicit,
    assert_equal,
    assert_same_theta,
    loss,
    make_model,
    omegas,
    train,
    wrap,
)

# ---------------------------------------------------------------------- delegation


def test_groups_state_and_defaults_are_the_inner_optimizers() -> None:
    model = make_model()
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer = wrap(model, adam)
    assert isinstance(optimizer, torch.optim.Optimizer)
    optimizer.load_state_dict(optimizer.state_dict())  # replaces those objects
    assert optimizer.param_groups is adam.param_groups
    assert optimizer.state is adam.state
    assert optimizer.defaults is adam.defaults
    optimizer.param_groups[0]["lr"] = 0.5
    assert adam.param_groups[0]["lr"] == 0.5
    lines = repr(optimizer).splitlines()
    assert lines[0].endswith("72 of 72 weights, 0 re-weightings, 0 steps")
    assert "around Adam, lr " in lines[0]
    assert len(lines) == 1 + len(optimizer.weights())
    assert max(map(len, lines)) < 100


def test_parameters_added_later_are_trained_as_they_are() -> None:
    model = make_model()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer.reweight()
    late = nn.Parameter(torch.ones(2, 2, dtype=torch.float64))
    optimizer.add_param_group({"params": [late], "lr": 0.5})
    late.grad = torch.full_like(late, 0.5)
    optimizer.step()
    assert torch.equal(late, torch.full_like(late, 0.75))
    assert set(optimizer.masks()) == {"fc1.weight", "fc2.weight"}
    assert optimizer.optimizer.param_groups[1]["params"] == [late]


def test_zero_grad() -> None:
    model = make_model()
    optimizer = wrap(model)
    loss(model, 0).backward()
    optimizer.zero_grad(set_to_none=False)
    assert all((param.grad == 0).all() for param in model.parameters())
    optimizer.zero_grad()
    assert all(param.grad is None for param in model.parameters())


def test_step_hooks_see_theta() -> None:
    model = make_model()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=1e-20))
    optimizer.reweight()
    theta = model.fc1.weight.detach().clone()
    seen: list[Tensor] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(model.fc1.weight.detach().clone()))
    optimizer.register_step_post_hook(lambda *_: seen.append(model.fc1.weight.detach().clone()))
    train(model, optimizer, range(1))
    for each in seen:
        torch.testing.assert_close(each, theta, rtol=1e-12, atol=0)
    assert len(seen) == 2


# ---------------------------------------------------------------------- learning-rate schedules


@pytest.mark.parametrize(
    "make",
    [
        partial(lr_scheduler.StepLR, step_size=2, gamma=0.5),
        partial(lr_scheduler.OneCycleLR, max_lr=0.1, total_steps=8),
        partial(lr_scheduler.ReduceLROnPlateau, patience=0, factor=0.5),
    ],
    ids=["StepLR", "OneCycleLR", "ReduceLROnPlateau"],
)
def test_schedulers_drive_the_inner_optimizer(make: Any) -> None:
    """Without a warning, and as they drive the explicit module."""
    model = make_model()
    optimizer = wrap(model)
    optimizer.reweight()
    reference = Explicit(model, omegas(optimizer))
    plain = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9)
    schedulers = [make(optimizer), make(plain)]
    for step in range(7):
        train(model, optimizer, range(step, step + 1))
        train(reference, plain, range(step, step + 1))
        for scheduler in schedulers:
            if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
                scheduler.step(1.0)
            else:
                scheduler.step()
        assert optimizer.param_groups[0]["lr"] == plain.param_groups[0]["lr"]
        assert optimizer.param_groups[0]["momentum"] == plain.param_groups[0]["momentum"]
        assert_same_theta(model, reference)
    assert optimizer.param_groups[0]["lr"] != 0.05


# ---------------------------------------------------------------------- mixed precision


@pytest.mark.parametrize("fused", [False, True])
def test_grad_scaler_skips_a_step_with_infinities_whole(fused: bool) -> None:
    model = make_model(torch.float32)
    optimizer = wrap(model, torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused))
    optimizer.reweight()
    optimizer.prune(density=0.5)
    train(model, optimizer, range(2))
    before = copy.deepcopy((model, optimizer.state_dict()))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    optimizer.zero_grad()
    scaler.scale(loss(model, 2)).backward()
    assert model.fc2.bias.grad is not None
    model.fc2.bias.grad[0] = torch.inf
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 128.0
    assert optimizer.steps == 2
    assert_equal(model, before[0])
    for key, entry in optimizer.state_dict()["state"].items():
        for name, value in entry.items():
            torch.testing.assert_close(value, before[1]["state"][key][name], rtol=0, atol=0)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
def test_grad_scaler_takes_the_same_steps(fused: bool, unscale: bool) -> None:
    """The scale is a power of two, so that it comes out exactly."""
    models = [make_model(torch.float32) for _ in range(2)]
    for model, scale in zip(models, (None, 1024.0), strict=True):
        optimizer = wrap(model, torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused))
        optimizer.reweight()
        if scale is None:
            train(model, optimizer, range(5))
            continue
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        for step in range(5):
            optimizer.zero_grad()
            scaler.scale(loss(model, step)).backward()
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    assert_equal(*models)


def test_training_under_autocast() -> None:
    model = make_model(torch.float32)
    optimizer = wrap(model)
    optimizer.reweight()
    optimizer.prune(density=0.4)
    for step in range(5):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = loss(model, step)
        value.backward()
        optimizer.step()
    assert model.fc1.weight.dtype == torch.float32
    for name, mask in optimizer.masks().items():
        assert (model.get_parameter(name)[~mask] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_parameters_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(InputError, match=r"fc1.weight is torch.*float16, too coarse.*autocast"):
        wrap(make_model(dtype))


def test_complex_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="weight is complex"):
        wrap(nn.Linear(2, 2, dtype=torch.complex64))


# ---------------------------------------------------------------------- clipping


def test_the_norm_is_clipped_in_q_space() -> None:
    model = make_model()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer.reweight()
    optimizer.prune(density=0.5)
    reference = Explicit(model, omegas(optimizer))
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    for step in range(5):
        for module, each in ((model, optimizer), (reference, plain)):
            each.zero_grad()
            loss(module, step).backward()
        found = optimizer.clip_grad_norm_(0.1)
        expected = nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
        assert expected > 0.1
        torch.testing.assert_close(found, expected)
        optimizer.step()
        plain.step()
        assert_same_theta(model, reference)


def test_the_norm_of_straight_through_gradients_is_their_own() -> None:
    model = make_model()
    optimizer = wrap(model, penalty=HardThreshold(0.5), algorithm=Splicing)
    optimizer.reweight()
    loss(model, 0).backward()
    expected = nn.utils.get_total_norm([param.grad for param in model.parameters()])
    assert torch.equal(optimizer.clip_grad_norm_(1e6), expected)


def test_a_norm_within_bounds_is_not_clipped() -> None:
    model = make_model()
    optimizer = wrap(model)
    loss(model, 0).backward()
    before = model.fc1.weight.grad.clone()
    assert optimizer.clip_grad_norm_(1e6) < 1e6
    torch.testing.assert_close(model.fc1.weight.grad, before, rtol=1e-5, atol=0)


# ---------------------------------------------------------------------- torch.compile


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"algorithm": ProximalReweighting, "lam": 0.05}])
def test_a_compiled_step_trains_as_a_plain_one(options: dict[str, Any]) -> None:
    models = [make_model(torch.float32) for _ in range(2)]
    for model, compiled in zip(models, (False, True), strict=True):
        adam = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
        optimizer = wrap(model, adam, **options)
        step = torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step
        optimizer.reweight()
        for number in range(8):
            optimizer.zero_grad()
            loss(model, number).backward()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch.compile names each place where a graph ends
                step()
            if number == 3:
                optimizer.prune(density=0.3)
        assert optimizer.steps == 8
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert torch.equal(one == 0, other == 0)


# ---------------------------------------------------------------------- memory


@pytest.fixture
def _small_heap() -> Iterator[None]:
    """Nothing that was there before is looked at, which takes a second each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def live_bytes() -> int:
    """The storage of every tensor that Python can reach, of those made in this test."""
    gc.collect()
    gc.collect()  # what the finalizers of the first have let go, as torch.compile's do
    tensors = [each for each in gc.get_objects() if type(each) in (Tensor, nn.Parameter)]
    sizes = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(sizes.values())


@pytest.mark.usefixtures("_small_heap")
@pytest.mark.parametrize("size", [256, 8])
def test_the_wrapper_costs_omega_and_one_mask(size: int) -> None:
    model = nn.Linear(size, size)
    weights = size * size
    before = live_bytes()
    optimizer = AffineScaling(torch.optim.SGD(model.parameters(), lr=0.1), model, ReweightedL1())
    assert live_bytes() - before == 4 * weights
    optimizer.reweight()
    assert live_bytes() - before == 4 * weights
    optimizer.prune(density=0.5)
    assert live_bytes() - before == (4 + 1) * weights


@pytest.mark.usefixtures("_small_heap")
def test_no_tensor_outlives_a_step() -> None:
    model = make_model(torch.float32)
    optimizer = wrap(model, torch.optim.AdamW(model.parameters(), lr=0.01), lam=0.1)
    optimizer.reweight()
    optimizer.prune(density=0.5)
    train(model, optimizer, range(2))
    before = live_bytes()
    train(model, optimizer, range(2, 6))
    optimizer.reweight()
    train(model, optimizer, range(6, 8))
    assert live_bytes() == before
