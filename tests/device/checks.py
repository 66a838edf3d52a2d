"""The wrapper's contract, the cut, the search and saving on a device that is not the CPU.

    ASTERISM_DEVICE=far pytest tests/device/checks.py       (or cuda)

Everything is done on the CPU too. On `far`, which computes there, results are the same bits.
"""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

import asterism
from asterism import (
    AffineScaling,
    AllLayers,
    ChartrandYin,
    Concave,
    Focuss,
    Group,
    HardThreshold,
    Noise,
    ProximalReweighting,
    ReweightedL1,
    ReweightedL2,
    Splicing,
)
from asterism.graph import live_forward
from asterism.scaling.masked import Masked
from asterism.storage import random_state
from support import device as far
from support.explicit import make_model
from support.small import make_data, trained

KIND = os.environ.get("ASTERISM_DEVICE", far.NAME)
DEVICE = far.device() if far.NAME == KIND else torch.device(KIND)
CPU = torch.device("cpu")


def schedule(step: int) -> float:
    return 0.01 * (step + 1)


def log_sum(z: Tensor) -> Tensor:
    return torch.log(z + 0.5)


def affine(inner: Any, model: nn.Module, penalty: Any = None, **options: Any) -> AffineScaling:
    return AffineScaling(
        inner, model, penalty or ReweightedL1(0.3), **{"layers": AllLayers(), **options}
    )


def proximal(inner: Any, model: nn.Module, penalty: Any, **options: Any) -> ProximalReweighting:
    return ProximalReweighting(inner, model, penalty, **{"lam": schedule, **options})


Form = Callable[[Any, nn.Module], Any]
FORMS: dict[str, Form] = {
    "affine": affine,
    "affine, lam": lambda inner, model: affine(inner, model, lam=0.05),
    "affine, lam schedule, order 2": lambda inner, model: affine(
        inner,
        model,
        ReweightedL2(0.3),
        lam=schedule,
        on_reweight="rescale",
        initialiser=Noise(0.1),
        anneal=ChartrandYin(forced=False),
    ),
    "affine, groups": lambda inner, model: affine(
        inner, model, Group(ReweightedL1(0.3)), lam=schedule
    ),
    "proximal": lambda inner, model: proximal(inner, model, ReweightedL1(0.3), lam=0.05),
    "proximal, order 2": lambda inner, model: proximal(inner, model, ReweightedL2(0.3)),
    "proximal by round": lambda inner, model: proximal(
        inner, model, ReweightedL1(0.3), reweight_every="round"
    ),
    "proximal, FOCUSS": lambda inner, model: proximal(inner, model, Focuss()),
    "proximal, any g": lambda inner, model: proximal(inner, model, Concave(log_sum)),
    "proximal, groups": lambda inner, model: proximal(inner, model, Group(ReweightedL1(0.3))),
    "splicing": lambda inner, model: Splicing(inner, model, HardThreshold(0.5, 0.8)),
    "masked": Masked,
}
INNERS: dict[str, Callable[..., Any]] = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.01),
    "AdamW foreach": lambda params: torch.optim.AdamW(params, lr=0.01, foreach=True),
}
FAST = {"affine, lam", "proximal", "splicing", "masked"}
"""Of the forms, those that `make test` tries."""


def marks(name: str) -> Any:
    return () if name in FAST else pytest.mark.slow


every_form = pytest.mark.parametrize(
    "form", [pytest.param(form, id=name, marks=marks(name)) for name, form in FORMS.items()]
)
every_inner = pytest.mark.parametrize(
    "inner",
    [
        pytest.param(make, id=name, marks=() if name == "AdamW foreach" else pytest.mark.slow)
        for name, make in INNERS.items()
    ],
)


def loss(model: nn.Module, step: int) -> Tensor:
    """On a batch that depends on the step alone, brought to the model's device."""
    generator = torch.Generator().manual_seed(step)
    x, y = (torch.randn(16, size, generator=generator) for size in (6, 3))
    where = next(model.parameters()).device
    return mse_loss(model(x.to(where)), y.to(where))


def train(model: nn.Module, optimizer: Any, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        loss(model, step).backward()
        optimizer.step()


@contextmanager
def without_waiting() -> Iterator[None]:
    """An error where the host waits for the device."""
    if KIND == "cuda":
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
    else:
        with far.Waits() as waits:
            yield
        assert not waits.found


def assert_agree(one: Any, on_device: Any) -> None:
    """The same bits where the device computes as the CPU does; else nearly the same numbers."""
    tolerance = {"rtol": 0, "atol": 0} if KIND == far.NAME else {"rtol": 1e-3, "atol": 1e-5}
    for name, value in one.items():
        torch.testing.assert_close(on_device[name].cpu(), value.detach(), **tolerance, msg=name)


def train_and_cut(where: torch.device, form: Form, inner: Any) -> tuple[nn.Module, Any]:
    """All that may happen to a wrapped optimizer, a checkpoint in the middle included."""
    model = make_model(torch.float32).to(where)
    optimizer = form(inner(model.parameters()), model)
    reweight = getattr(optimizer, "reweight", lambda: None)
    reweight()
    train(model, optimizer, range(3))
    reweight()
    train(model, optimizer, range(3, 6))
    if isinstance(optimizer, Splicing):
        optimizer.flatten()
        reweight = list
    optimizer.prune(density=0.5)
    train(model, optimizer, range(6, 8))
    optimizer.clip_grad_norm_(1.0)
    optimizer.prune(density=0.3)
    reweight()
    train(model, optimizer, range(8, 10))
    model, optimizer = resumed(model, optimizer, form, inner)
    train(model, optimizer, range(10, 12))
    optimizer.flatten()
    train(model, optimizer, range(12, 14))
    assert f"{type(optimizer).__name__} around" in repr(optimizer)
    return model, optimizer


def resumed(
    model: nn.Module, optimizer: Any, form: Form, inner: Any, where: torch.device | None = None
) -> tuple[nn.Module, Any]:
    """From the bytes of a checkpoint, on the same device or another one."""
    file = io.BytesIO()
    torch.save((model.state_dict(), optimizer.state_dict()), file)
    file.seek(0)
    weights, state = torch.load(file, weights_only=True, map_location=where and "cpu")
    where = where or next(model.parameters()).device
    again = make_model(torch.float32).to(where)
    wrapped = form(inner(again.parameters()), again)
    again.load_state_dict(weights)
    wrapped.load_state_dict(state)
    return again, wrapped


# ---------------------------------------------------------------------- the device itself


def test_tensors_of_two_devices_do_not_mix() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(3, device=DEVICE) + torch.ones(3)
    with pytest.raises(RuntimeError, match=".*"):
        torch.ones(3, device=DEVICE).mul_(torch.ones(3, dtype=torch.bool))


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: float(x[0]),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.cpu(),
        lambda x: torch.empty(3).copy_(x),
    ],
)
def test_waiting_is_noticed(wait: Callable[[Tensor], Any]) -> None:
    x = torch.ones(3, device=DEVICE)
    with pytest.raises((AssertionError, RuntimeError)), without_waiting():
        wait(x)


# ---------------------------------------------------------------------- the wrapper's contract


@every_form
@every_inner
def test_training_is_what_it_is_on_the_cpu(form: Form, inner: Any) -> None:
    model, optimizer = train_and_cut(CPU, form, inner)
    other, on_device = train_and_cut(DEVICE, form, inner)
    assert {param.device.type for param in other.parameters()} == {KIND}
    assert_agree(model.state_dict(), other.state_dict())
    masks = on_device.masks()
    assert {mask.device.type for mask in masks.values()} == {KIND}
    for name, mask in optimizer.masks().items():
        assert torch.equal(mask, masks[name].cpu())
        assert (other.get_parameter(name).detach().cpu()[~mask] == 0).all()


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in FORMS])
@every_inner
@pytest.mark.parametrize("density", [None, 0.6, 0.1])
def test_a_step_never_waits_for_the_device(name: str, inner: Any, density: float | None) -> None:
    model = make_model(torch.float32).to(DEVICE)
    optimizer = FORMS[name](inner(model.parameters()), model)
    if density is not None and isinstance(optimizer, Splicing):
        optimizer.flatten()
    elif not isinstance(optimizer, Masked):
        optimizer.reweight()
    train(model, optimizer, range(1))
    if density is not None:
        optimizer.prune(density=max(density, 0.3) if "groups" in name else density)
    for step in range(1, 4):
        optimizer.zero_grad()
        loss(model, step).backward()
        with without_waiting():
            optimizer.step()


def calls_of_a_step(count: int, wrap: Form | None) -> int:
    """The operations that a step hands over to the device, with as many layers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 3), *(nn.Linear(3, 3) for _ in range(count))).to(DEVICE)
    optimizer = INNERS["AdamW foreach"](model.parameters())
    if wrap is not None:
        optimizer = wrap(optimizer, model)
        optimizer.reweight()
    train(model, optimizer, range(2))
    loss(model, 2).backward()
    with far.Waits() as waits:
        optimizer.step()
    return waits.calls


@pytest.mark.parametrize(
    "name",
    ["affine, lam", "proximal", "proximal, order 2", "proximal by round", "proximal, FOCUSS"],
)
def test_one_pass_shrinks_the_weights_of_all_layers(name: str) -> None:
    added = [calls_of_a_step(n, FORMS[name]) - calls_of_a_step(n, None) for n in (2, 9)]
    assert added[0] == added[1] > 0


@every_form
def test_a_checkpoint_goes_from_one_device_to_the_other(form: Form) -> None:
    inner = INNERS["AdamW"]
    states = []
    for start, end in ((CPU, DEVICE), (DEVICE, CPU)):
        model = make_model(torch.float32).to(start)
        optimizer = form(inner(model.parameters()), model)
        train(model, optimizer, range(3))
        model, optimizer = resumed(model, optimizer, form, inner, where=end)
        train(model, optimizer, range(3, 6))
        states.append({name: value.cpu() for name, value in model.state_dict().items()})
    assert_agree(*states)


def test_copies_stay_on_the_device() -> None:
    model = make_model(torch.float32).to(DEVICE)
    optimizer = affine(INNERS["AdamW"](model.parameters()), model)
    optimizer.reweight()
    train(model, optimizer, range(2))
    other, twin = copy.deepcopy((model, optimizer))
    train(model, optimizer, range(2, 4))
    train(other, twin, range(2, 4))
    assert_agree({k: v.cpu() for k, v in model.state_dict().items()}, other.state_dict())


@pytest.mark.parametrize("name", ["affine, lam", "proximal", "masked"])
@pytest.mark.parametrize(("before", "now"), [(CPU, DEVICE), (DEVICE, CPU)])
def test_a_model_that_is_moved_after_wrapping_is_refused(
    name: str, before: torch.device, now: torch.device
) -> None:
    """Seen from the other side: `far` cannot put its tensors into parameters of the CPU."""
    model = make_model(torch.float32).to(now)
    optimizer = FORMS[name](INNERS["AdamW"](model.parameters()), model)
    for layer in optimizer._layers:
        layer.omega = layer.omega.to(before)
    loss(model, 0).backward()
    for act in (optimizer.step, optimizer.flatten, lambda: optimizer.prune(density=0.5)):
        with pytest.raises(asterism.InputError, match=f"is on {now.type}.* now: bring the model"):
            act()


def test_masks_from_the_cpu_are_taken_to_the_device() -> None:
    model = make_model(torch.float32).to(DEVICE)
    optimizer = Masked(INNERS["SGD"](model.parameters()), model, freeze_zeros=False)
    mask = torch.rand(model.fc1.weight.shape) < 0.5
    optimizer.prune(masks={"fc1.weight": mask})
    optimizer.prune(n_to_m={"fc1*": "1:2"})
    optimizer.prune(threshold={"fc2*": 0.1})
    train(model, optimizer, range(2))
    assert not model.fc1.weight.detach().cpu()[~mask].any()


# ---------------------------------------------------------------------- mixed precision


@pytest.mark.parametrize("name", ["affine, lam", "proximal", "masked"])
def test_autocast(name: str) -> None:
    model = make_model(torch.float32).to(DEVICE)
    optimizer = FORMS[name](INNERS["AdamW"](model.parameters()), model)
    optimizer.prune(density=0.5)
    before = [param.detach().cpu() for param in model.parameters()]
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast(KIND, dtype=torch.bfloat16):
            assert model.fc1(torch.ones(1, 6, device=DEVICE)).dtype == torch.bfloat16
            value = loss(model, step)
        value.backward()
        optimizer.step()
    for param, old in zip(model.parameters(), before, strict=True):
        assert param.dtype == torch.float32
        assert not torch.equal(param.detach().cpu(), old)
        assert torch.equal(param.detach().cpu()[old == 0], old[old == 0])


@pytest.mark.parametrize("name", ["affine", "proximal"])
def test_grad_scaler(name: str) -> None:
    """The scale is a power of two, so that it comes out exactly; infinities skip a step."""
    models = [make_model(torch.float32).to(DEVICE) for _ in range(2)]
    plain, scaled = (FORMS[name](INNERS["AdamW"](each.parameters()), each) for each in models)
    scaler = torch.amp.GradScaler(KIND, init_scale=256.0)
    for optimizer in (plain, scaled):
        optimizer.reweight()
    train(models[0], plain, range(3))
    for step in range(4):
        scaled.zero_grad()
        scaler.scale(loss(models[1], step)).backward()
        if step == 3:
            bias = models[1].fc1.bias
            assert bias.grad is not None
            bias.grad.fill_(torch.inf)
        scaler.step(scaled)
        scaler.update()
    assert scaler.get_scale() == 128.0
    assert scaled.steps == 3
    expected = {name: value.cpu() for name, value in models[0].state_dict().items()}
    assert_agree(expected, models[1].state_dict())


# ---------------------------------------------------------------------- the search and files


def task(**options: Any) -> asterism.search.task.Supervised:
    order = torch.Generator().manual_seed(5)
    loader = DataLoader(make_data(), batch_size=256, shuffle=True, generator=order)
    return asterism.supervised(loader, DataLoader(make_data(seed=4), batch_size=256), **options)


def search(where: torch.device, folder: Path, watch: Any = None, resume: bool = False) -> Any:
    return asterism.sparsify(
        trained().to(where),
        task(),
        max_drop=3.0,
        max_epochs=3,
        run=folder,
        watch=watch,
        resume=resume,
        progress=False,
    )


def test_a_search_that_is_interrupted_finds_what_it_finds_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through one forward pass: on the CPU few weights would have a faster one of their own."""
    monkeypatch.setattr("asterism.search.task.live_if_worth", lambda *_: None)
    expected = search(CPU, tmp_path / "cpu")
    seen: list[Any] = []

    def interrupt(record: Any) -> None:
        seen.append(record)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(DEVICE, tmp_path / "device", watch=interrupt)
    found = search(DEVICE, tmp_path / "device", resume=True)
    assert {param.device.type for param in found.model.parameters()} == {KIND}
    assert [each.trial for each in found.history] == [each.trial for each in expected.history]
    assert found.best.nonzeros == expected.best.nonzeros
    assert_agree(expected.model.state_dict(), found.model.state_dict())


def test_training_does_not_wait_either() -> None:
    """In `supervised` nothing is looked at but the mean loss of an epoch."""
    model = trained().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if KIND == far.NAME:
        with far.Waits() as waits:
            task(clip_norm=1.0).fit(model, optimizer, 2)
        assert len(waits.found) == 2
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    with pytest.raises(asterism.errors.DivergedError, match="the loss is nan in epoch 1"):
        task().fit(model, optimizer, 2)


def test_a_network_is_saved_from_the_device(tmp_path: Path) -> None:
    model = trained().to(DEVICE).eval()
    inputs = torch.zeros(1, 20, device=DEVICE)
    asterism.save(model, tmp_path / "net.asterism", example_inputs=inputs)
    x = torch.randn(5, 20)
    expected = model(x.to(DEVICE)).detach().cpu().numpy()
    found = asterism.runtime.load(tmp_path / "net.asterism")(x.numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_live_weights_are_left_to_the_cpu() -> None:
    model = trained().to(DEVICE)
    optimizer = Masked(torch.optim.SGD(model.parameters(), lr=0.1), model)
    optimizer.prune(density=0.02)
    inputs = (torch.zeros(8, 20, device=DEVICE),)
    assert live_forward.live_if_worth(model, optimizer.masks, inputs) is None


def test_the_random_state_of_a_device_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    if KIND == far.NAME:  # whose random numbers are the CPU's
        states = [torch.tensor([1])]
        module = torch.get_device_module(DEVICE)
        monkeypatch.setattr(module, "get_rng_state_all", lambda: list(states), raising=False)
        monkeypatch.setattr(module, "set_rng_state_all", states.__init__, raising=False)
        state = random_state.capture()
        states[0] = torch.tensor([2])
        random_state.restore(state)
        assert states == [torch.tensor([1])]
    state = random_state.capture()
    first = torch.rand(3, device=DEVICE).cpu()
    random_state.restore(state)
    assert torch.equal(torch.rand(3, device=DEVICE).cpu(), first)
