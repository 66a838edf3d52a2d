"""The way from theta to q and back, for all layers at once, in place.

Owns the arithmetic of one optimizer step around the inner step, and its safety: whatever happens
inside, the model ends in theta-space and its gradients are those of theta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from asterism.layer import Layer

Closure = Callable[[], Any]


class QSpace:
    """A context in which parameters hold q and gradients are those of q."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.scaled = [layer for layer in layers if layer.scaled]
        self.latent = [layer for layer in layers if layer.latent is not None]
        # Where a gradient must be brought to q-space, or masked.
        self.touched = [
            layer
            for layer in layers
            if layer.latent is None and (layer.scaled or layer.dead is not None)
        ]
        self.inside = self.gradients_scaled = False

    @contextmanager
    def __call__(self, scale_gradients: bool) -> Iterator[None]:
        try:
            self._enter()
            if scale_gradients:
                self._scale_gradients()
            yield
        except BaseException:
            self._leave()
            # The interrupt may have come between 0 / 0 and its repair.
            _fill_dead([layer.param for layer in self.scaled], self.scaled)
            self._restore_gradients()
            raise
        self._leave()
        self._restore_gradients()

    def evaluate(self, closure: Closure) -> Any:
        """The user's closure sees theta, and its gradients reach the optimizer in q-space."""
        self._leave()
        self._restore_gradients()
        with torch.enable_grad():
            loss = closure()
        self._enter()
        self._scale_gradients()
        return loss

    def _enter(self) -> None:
        _divide([layer.param for layer in self.scaled], self.scaled)
        for layer in self.latent:
            assert layer.latent is not None
            layer.param.copy_(layer.latent)
        self.inside = True

    def _leave(self) -> None:
        if not self.inside:
            return
        for layer in self.latent:
            assert layer.latent is not None
            layer.latent.copy_(layer.param)
            layer.param.mul_(layer.omega)
        if self.touched:
            params: list[Any] = [layer.param for layer in self.touched]
            torch._foreach_mul_(params, [layer.omega for layer in self.touched])
        self.inside = False

    def _scale_gradients(self) -> None:
        layers = [layer for layer in self.touched if layer.param.grad is not None]
        if layers:
            gradients: list[Any] = [layer.param.grad for layer in layers]
            torch._foreach_mul_(gradients, [layer.omega for layer in layers])
        self.gradients_scaled = True

    def _restore_gradients(self) -> None:
        """Back to gradients of theta, so that accumulation goes on as without the wrapper."""
        if self.gradients_scaled:
            layers = [layer for layer in self.scaled if layer.param.grad is not None]
            _divide([layer.param.grad for layer in layers], layers)
            self.gradients_scaled = False


def _divide(tensors: list[Any], layers: Sequence[Layer]) -> None:
    """tensor ← tensor / omega, 0 where pruned, in place."""
    if tensors:
        torch._foreach_div_(tensors, [layer.omega for layer in layers])
        _fill_dead(tensors, layers)


def _fill_dead(tensors: list[Any], layers: Sequence[Layer]) -> None:
    for tensor, layer in zip(tensors, layers, strict=True):
        if layer.dead is not None:
            tensor.masked_fill_(layer.dead, 0.0)
