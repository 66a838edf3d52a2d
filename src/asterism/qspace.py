"""The way from theta to q and back, for all layers at once, in place.

Owns the arithmetic of one optimizer step around the inner step, and its safety: whatever happens
inside, the model ends in theta-space and its gradients are those of theta.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from asterism.layer import Layer

Closure = Callable[[], Any]


class QSpace:
    """Between `enter` and `leave` parameters hold q and gradients are those of q.

    Both know where they stand, so that leaving twice is leaving once.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        direct = [layer for layer in layers if layer.latent is None]
        self.latent = [layer for layer in layers if layer.latent is not None]
        self.scaled = [layer for layer in direct if layer.scaled]
        self.masked = [layer for layer in direct if layer.scaled or layer.dead is not None]
        self.pruned = [layer for layer in layers if layer.dead is not None]
        self.inside = False

    def enter(self) -> None:
        """theta → q, and gradients of theta → gradients of q; straight through where latent."""
        with uninterrupted():
            _divide([layer.param for layer in self.scaled], self.scaled)
            for layer in self.latent:
                assert layer.latent is not None
                layer.param.copy_(layer.latent)
            _multiply(*_gradients(self.masked))
            self.inside = True

    def leave(self) -> None:
        """q → theta, and gradients of q → gradients of theta; exact zeros where pruned."""
        with uninterrupted():
            if not self.inside:
                return
            for layer in self.latent:
                assert layer.latent is not None
                layer.latent.copy_(layer.param)
                layer.param.mul_(layer.omega)
            _multiply([layer.param for layer in self.scaled], self.scaled)
            # Where an inner optimizer divides 0 by 0, multiplying by 0 would not do.
            for layer in self.pruned:
                assert layer.dead is not None
                layer.param.masked_fill_(layer.dead, 0.0)
            # So that gradients accumulate as without the wrapper.
            _divide(*_gradients(self.scaled))
            self.inside = False

    @torch.no_grad()
    def evaluate(self, closure: Closure) -> Any:
        """The user's closure sees theta, and its gradients reach the optimizer in q-space."""
        self.leave()
        with torch.enable_grad():
            loss = closure()
        self.enter()
        return loss


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of the block: what belongs together changes together."""
    handler = signal.getsignal(signal.SIGINT)
    # Python runs signal handlers in the main thread alone.
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *interrupt: waiting.append(interrupt))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if waiting:
            handler(*waiting[-1])


def _gradients(layers: Sequence[Layer]) -> tuple[list[Any], list[Layer]]:
    having = [layer for layer in layers if layer.param.grad is not None]
    return [layer.param.grad for layer in having], having


def _multiply(tensors: list[Any], layers: Sequence[Layer]) -> None:
    """tensor ← tensor ⊙ omega, in place."""
    if tensors:
        torch._foreach_mul_(tensors, [layer.omega for layer in layers])


def _divide(tensors: list[Any], layers: Sequence[Layer]) -> None:
    """tensor ← tensor / omega, in place; 0 stays 0 where pruned."""
    if tensors:
        torch._foreach_div_(tensors, [_divisor(layer) for layer in layers])


def _divisor(layer: Layer) -> Tensor:
    """omega, with the smallest normal number in place of 0; live weights have no smaller one."""
    if layer.dead is None:
        return layer.omega
    return layer.omega.clamp_min(torch.finfo(layer.omega.dtype).tiny)
