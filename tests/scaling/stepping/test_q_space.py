"""Whatever happens inside a step, the model holds theta afterwards."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import asterism
from asterism import AffineScaling, HardThreshold, ReweightedL1, SparseOptimizer, Splicing
from asterism.scaling.stepping.interrupts import uninterrupted
from asterism.scaling.stepping.q_space import is_in_q_space
from asterism.weights.sharding import whole
from support.explicit import Explicit, assert_same_theta, loss, make_model, omegas, train, wrap
from support.properties import is_nightly

Snapshot = dict[str, tuple[Tensor, Tensor]]


def scaled(**options: Any) -> tuple[nn.Sequential, AffineScaling]:
    """Re-weighted and half pruned, in the middle of training."""
    model = make_model()
    optimizer = wrap(model, **options)
    optimizer.reweight()
    train(model, optimizer, range(3))
    optimizer.prune(density=0.5)
    train(model, optimizer, range(3, 6))
    return model, optimizer


def spliced() -> tuple[nn.Sequential, Splicing]:
    model = make_model()
    optimizer = wrap(model, penalty=HardThreshold(0.5), algorithm=Splicing)
    optimizer.reweight()
    train(model, optimizer, range(3))
    return model, optimizer


def backward(model: nn.Module, optimizer: SparseOptimizer) -> None:
    optimizer.zero_grad()
    loss(model, 7).backward()


def snapshot(model: nn.Module) -> Snapshot:
    return {
        name: (param.detach().clone(), param.grad.clone())
        for name, param in model.named_parameters()
        if param.grad is not None
    }


def assert_unchanged(model: nn.Module, optimizer: SparseOptimizer, before: Snapshot) -> None:
    """Up to rounding; gradients of pruned weights may have become 0 or not."""
    masks, scales = optimizer.masks(), omegas(optimizer)
    for name, (theta, gradient) in before.items():
        param = model.get_parameter(name)
        assert param.grad is not None
        live = masks.get(name, torch.ones_like(theta, dtype=torch.bool))
        torch.testing.assert_close(param.detach(), theta, rtol=1e-12, atol=1e-15)
        found = param.grad / scales[name] if is_in_q_space(param.grad) else param.grad
        torch.testing.assert_close(found[live], gradient[live], rtol=1e-12, atol=1e-15)


# ---------------------------------------------------------------------- closures


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.LBFGS])
@pytest.mark.parametrize("make", [scaled, spliced])
def test_the_closure_always_sees_theta(
    make: Callable[[], tuple[nn.Sequential, SparseOptimizer]], kind: Any
) -> None:
    model, optimizer = make()
    optimizer.optimizer = kind(model.parameters(), lr=0.1)
    before = {name: theta.clone() for name, theta in model.state_dict().items()}
    seen: list[dict[str, Tensor]] = []

    def closure() -> Tensor:
        assert torch.is_grad_enabled()
        seen.append({name: theta.clone() for name, theta in model.state_dict().items()})
        optimizer.zero_grad()
        value = loss(model, 7)
        value.backward()
        return value

    expected = loss(model, 7)
    torch.testing.assert_close(optimizer.step(closure), expected)
    for name, theta in before.items():
        torch.testing.assert_close(seen[0][name], theta, rtol=1e-12, atol=0)
    for each in seen:
        for name, mask in optimizer.masks().items():
            assert (each[name][~mask] == 0).all()
    assert len(seen) > (kind is torch.optim.LBFGS)


def test_a_step_with_a_closure_is_a_step_without() -> None:
    (model, optimizer), (other, other_optimizer) = scaled(), scaled()
    backward(other, other_optimizer)
    other_optimizer.step()
    optimizer.step(lambda: (backward(model, optimizer), loss(model, 7))[1])
    for name, theta in other.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], theta, rtol=1e-12, atol=1e-15)


def test_the_losses_of_lbfgs_are_those_of_theta() -> None:
    model = make_model()
    optimizer = wrap(model, torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe"))
    optimizer.reweight()
    start = loss(model, 7).item()
    found = optimizer.step(lambda: (backward(model, optimizer), loss(model, 7))[1])
    assert found.item() == pytest.approx(start)
    assert loss(model, 7).item() < start


# ---------------------------------------------------------------------- gradients


@pytest.mark.parametrize("density", [0.5, 0.05])
@pytest.mark.parametrize("flattened", [False, True], ids=["scaled", "flattened"])
def test_gradients_after_a_step_are_those_of_q(flattened: bool, density: float) -> None:
    model, optimizer = scaled()
    optimizer.prune(density=density)
    if flattened:
        optimizer.flatten()
    backward(model, optimizer)
    before = snapshot(model)
    optimizer.step()
    for name, omega in omegas(optimizer).items():
        gradient = model.get_parameter(name).grad
        assert gradient is not None
        live = omega != 0
        torch.testing.assert_close(gradient[live], (before[name][1] * omega)[live])


def test_a_second_step_takes_the_same_gradient_as_in_the_explicit_module() -> None:
    model, optimizer = scaled(optimizer=None)
    reference = Explicit(model, omegas(optimizer))
    optimizer.optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    plain = torch.optim.SGD(reference.parameters(), lr=0.05)
    for step in range(3):
        for module, stepper in ((model, optimizer), (reference, plain)):
            stepper.zero_grad(set_to_none=step % 2 == 0)
            loss(module, 2 * step).backward()
            loss(module, 2 * step + 1).backward()  # accumulated between the steps
            for _ in range(3):
                stepper.step()
        assert_same_theta(model, reference)


def test_what_fsdp2_adds_to_a_gradient_that_was_used_is_seen() -> None:
    """It adds to the shard itself, past the DTensor."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        plain, sharded = make_model(), make_model()
        fully_shard(sharded, mesh=init_device_mesh("cpu", (1,)))
        for model in (plain, sharded):
            optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.05))
            optimizer.reweight()
            for step in range(3):  # never zeroed
                loss(model, step).backward()
                optimizer.step()
        for one, other in zip(plain.parameters(), sharded.parameters(), strict=True):
            torch.testing.assert_close(whole(other.detach()), one.detach())
    finally:
        dist.destroy_process_group()


def test_clipping_a_gradient_that_was_used_counts_omega_once() -> None:
    model, optimizer = scaled()
    backward(model, optimizer)
    optimizer.step()
    gradients = []
    for name, param in model.named_parameters():
        assert param.grad is not None
        gradients.append(param.grad * optimizer.masks().get(name, 1))
    expected = nn.utils.get_total_norm(gradients)
    torch.testing.assert_close(optimizer.clip_grad_norm_(1e9), expected)


def test_an_optimizer_that_mixes_weights_sees_no_gradient_of_a_pruned_one() -> None:
    class Normalised(torch.optim.SGD):
        """Divides each gradient by its norm, which any weight's gradient changes."""

        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                for param in group["params"]:
                    param.grad /= param.grad.norm() + 0.1
            return super().step(closure)

    for density in (0.5, 0.05):
        for flattened in (False, True):
            model, optimizer = scaled()
            optimizer.prune(density=density)
            if flattened:
                optimizer.flatten()
            reference = Explicit(model, omegas(optimizer))
            optimizer.optimizer = Normalised(model.parameters(), lr=0.05)
            plain = Normalised(reference.parameters(), lr=0.05)
            train(model, optimizer, range(3))
            train(reference, plain, range(3))
            assert_same_theta(model, reference)


# ---------------------------------------------------------------------- exceptions


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("make", [scaled, spliced])
def test_an_exception_inside_the_inner_step_leaves_theta(
    make: Callable[[], tuple[nn.Sequential, SparseOptimizer]], error: type[BaseException]
) -> None:
    model, optimizer = make()
    backward(model, optimizer)
    before = snapshot(model)
    steps = optimizer.steps

    def fail(*_: Any) -> None:
        moved = [not torch.equal(model.get_parameter(name), before[name][0]) for name in before]
        assert any(moved), "the hook is meant to run in q-space"
        raise error

    handle = optimizer.optimizer.register_step_pre_hook(fail)
    with pytest.raises(error):
        optimizer.step()
    assert_unchanged(model, optimizer, before)
    assert optimizer.steps == steps
    handle.remove()
    optimizer.step()
    assert all(param.isfinite().all() for param in model.parameters())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_inside_the_closure_leaves_theta(error: type[BaseException]) -> None:
    model, optimizer = scaled()
    backward(model, optimizer)
    before = snapshot(model)

    def closure() -> Tensor:
        backward(model, optimizer)
        raise error

    with pytest.raises(error):
        optimizer.step(closure)
    assert_unchanged(model, optimizer, before)


# ---------------------------------------------------------------------- Ctrl-C at any moment


class Interrupter:
    """Sends SIGINT before the n-th line that runs in the package or in contextlib.

    Generator expressions are left out: Python ignores what is raised while they are closed.
    """

    def __init__(self, n: int) -> None:
        self.left = n
        self.files = (str(Path(asterism.__file__).parent), contextlib.__file__)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not any(part in code.co_filename for part in self.files) or code.co_name == "<genexpr>":
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)
        return self


def interrupted(action: Callable[[], Any], n: int) -> bool:
    before = sys.gettrace()
    sys.settrace(Interrupter(n))
    try:
        action()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("make", [scaled, spliced])
def test_ctrl_c_at_any_line_of_a_step_leaves_theta(
    make: Callable[[], tuple[nn.Sequential, SparseOptimizer]],
) -> None:
    model, optimizer = make()
    for group in optimizer.param_groups:
        group["lr"] = 1e-20  # so that theta before and after are the same
    backward(model, optimizer)
    before = snapshot(model)
    n = 1
    while interrupted(optimizer.step, n):
        assert_unchanged(model, optimizer, before)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        n += 1
    assert n > 100


class Thresholded(ReweightedL1):
    """omega = z, 0 for small z: a re-weighting that scales and prunes."""

    def omega(self, z: Tensor, scale: Any = 1.0, previous: Tensor | None = None) -> Tensor:
        return z * (z > 0.2)


@pytest.mark.parametrize("action", ["reweight", "prune", "flatten"])
def test_ctrl_c_at_any_line_of_a_change_of_omega_leaves_a_whole(action: str) -> None:
    actions: dict[str, Callable[[AffineScaling], Any]] = {
        "reweight": AffineScaling.reweight,
        "prune": lambda optimizer: optimizer.prune(density=0.3),
        "flatten": AffineScaling.flatten,
    }
    n = 1
    while True:
        model, optimizer = scaled(penalty=Thresholded())
        stopped = interrupted(lambda: actions[action](optimizer), n)  # noqa: B023
        masks = optimizer.masks()
        for name, omega in omegas(optimizer).items():
            theta = model.get_parameter(name).detach()
            assert torch.equal(omega != 0, masks[name])
            assert (theta[~masks[name]] == 0).all()
        train(model, optimizer, range(6, 8))
        assert all(param.isfinite().all() for param in model.parameters())
        for name, mask in masks.items():
            assert (model.get_parameter(name)[~mask] == 0).all()
        if not stopped:
            break
        n += 3 if is_nightly() else 10
    assert n > 20


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    reached: list[bool] = []

    @uninterrupted()
    def block() -> None:
        signal.raise_signal(signal.SIGINT)
        reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_users_own_is_called_afterwards() -> None:
    calls: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    try:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            assert not calls
        assert calls == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_steps_can_be_taken_in_another_thread() -> None:
    model, optimizer = scaled()
    thread = threading.Thread(target=train, args=(model, optimizer, range(6, 9)))
    thread.start()
    thread.join()
    assert optimizer.steps == 9


@pytest.mark.parametrize("density", [None, 0.5], ids=["whole", "pruned"])
@pytest.mark.parametrize("kind", ["one object", "with a bias", "expanded"])
def test_gradients_that_share_memory_are_scaled_once_each(kind: str, density: float | None) -> None:
    """What a user may set: the same tensor twice, or one number for all entries."""

    def step(shared: bool) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).double()
        optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
        optimizer.reweight()
        if density is not None:
            optimizer.prune(density=density)
        one, two = model[0].weight, model[1].weight
        if kind == "with a bias":
            optimizer.add_param_group({"params": [two := nn.Parameter(torch.ones_like(one))]})
        gradient = torch.full((1, 1), 0.3, dtype=torch.float64).expand(4, 4)
        if kind != "expanded" or not shared:
            gradient = gradient.clone()
        one.grad, two.grad = gradient, gradient if shared else gradient.clone()
        optimizer.step()
        return {"one": one.detach(), "two": two.detach()}

    found, expected = step(shared=True), step(shared=False)
    for name, theta in expected.items():
        torch.testing.assert_close(found[name], theta)
