"""The way from theta to q and back, for all layers at once, in place.

Owns the arithmetic of one optimizer step around the inner step, and its safety: whatever happens
inside, the model ends in theta-space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from asterism.scaling.layer import Layer
from asterism.scaling.stepping import inner_optimizer as inner
from asterism.scaling.stepping.interrupts import uninterrupted
from asterism.scaling.stepping.pruned_layers import PrunedLayers
from asterism.scaling.stepping.small_layers import SmallLayers
from asterism.weights.sharding import is_sharded, local

Closure = Callable[[], Any]

# On a gradient in q-space: its versions then. Whoever writes to it makes it one of theta.
IN_Q_SPACE = "_asterism_in_q_space"


class QSpace:
    """Between `enter` and `leave` parameters hold q and gradients are those of q.

    Both know where they stand, so that leaving twice is leaving once.
    """

    def __init__(
        self, optimizer: Optimizer, layers: Sequence[Layer], compiled: SmallLayers | None = None
    ) -> None:
        self.optimizer = optimizer
        direct = [layer for layer in layers if layer.latent is None]
        self.latent = [layer for layer in layers if layer.latent is not None]
        scaled = [layer for layer in direct if layer.scaled and not layer.pruned]
        self.small = [layer for layer in scaled if layer.is_small]
        self.large = [layer for layer in scaled if not layer.is_small]
        self.compiled = compiled or SmallLayers()
        self.pruned = PrunedLayers([layer for layer in direct if layer.pruned])
        self.elementwise = inner.is_elementwise(optimizer)
        self.inside = False

    @uninterrupted()
    def enter(self) -> None:
        """theta → q, and gradients of theta → gradients of q; straight through where latent."""
        pruned = self.pruned.layers
        if self.small or self.large or pruned:
            _separate_gradients(self.optimizer, (*self.small, *self.large, *pruned))
        # What stands where a weight is pruned is nothing to an elementwise optimizer.
        of_pruned = [
            _gradient_of_theta(layer) if layer.scaled or not self.elementwise else None
            for layer in pruned
        ]
        of_small = [_gradient_of_theta(layer) for layer in self.small]
        of_large = [_gradient_of_theta(layer) for layer in self.large]
        for layer in self.latent:
            assert layer.latent is not None
            layer.param.copy_(layer.latent)
        if self.compiled.take(self.small, of_small):
            self.compiled.to_q()
        else:
            _to_q(self.small, of_small)
        _to_q(self.large, of_large)
        if any(layer.scaled for layer in pruned) or not self.elementwise:
            self.pruned.to_q(of_pruned, zero=not self.elementwise)
        # At the end: gradients that are views of one bucket share their version.
        for gradient in (*of_small, *of_large, *of_pruned):
            if gradient is not None:
                mark_in_q_space(gradient)
        self.inside = True

    @uninterrupted()
    def leave(self, *, restore: bool = False) -> None:
        """q → theta, exact zeros where pruned.

        Gradients have been used by now and stay those of q: to bring them back would cost a
        third of this wrapper's time. `restore` does, for a step that was not taken.
        """
        if not self.inside:
            return
        for layer in self.latent:
            assert layer.latent is not None
            layer.latent.copy_(layer.param)
            layer.multiply_(layer.param)
        self.pruned.to_theta()
        if not self.compiled.to_theta(self.small):
            _to_theta(self.small)
        _to_theta(self.large)
        if restore:
            self._restore_gradients()
        self.inside = False

    def _restore_gradients(self) -> None:
        used = [
            layer
            for layer in (*self.small, *self.large, *self.pruned.layers)
            if layer.param.grad is not None and is_in_q_space(layer.param.grad)
        ]
        for layer in used:
            delattr(layer.param.grad, IN_Q_SPACE)
            if layer.scaled:
                layer.divide_(_gradient(layer))

    @torch.no_grad()
    def evaluate(self, closure: Closure) -> Any:
        """The user's closure sees theta, and its gradients reach the optimizer in q-space."""
        self.leave(restore=True)
        with torch.enable_grad():
            loss = closure()
        self.enter()
        return loss


def _to_q(layers: Sequence[Layer], gradients: Sequence[Tensor | None]) -> None:
    """The same by torch; gradients that are None stay as they are."""
    if layers:
        thetas: list[Any] = [layer.param for layer in layers]
        torch._foreach_div_(thetas, [layer.omega for layer in layers])
    given = [(each, layer.omega) for each, layer in zip(gradients, layers, strict=True)]
    some = [(each, omega) for each, omega in given if each is not None]
    if some:
        torch._foreach_mul_([each for each, _ in some], [omega for _, omega in some])


def _to_theta(layers: Sequence[Layer]) -> None:
    if layers:
        qs: list[Any] = [layer.param for layer in layers]
        torch._foreach_mul_(qs, [layer.omega for layer in layers])


def _separate_gradients(optimizer: Optimizer, layers: Sequence[Layer]) -> None:
    """A gradient of its own, that can be written to, for each layer: users may set any tensor."""
    held = [id(param.grad) for group in optimizer.param_groups for param in group["params"]]
    shared = {each for each in held if held.count(each) > 1} if len(set(held)) < len(held) else ()
    for layer in layers:
        gradient = layer.param.grad
        if gradient is None or (not shared and gradient.is_contiguous()):
            continue
        if id(gradient) in shared or inner.has_repeats(gradient):
            layer.param.grad = gradient.clone()
            if is_in_q_space(gradient):
                mark_in_q_space(layer.param.grad)


def is_in_q_space(gradient: Tensor) -> bool:
    """Whether a step has brought this gradient to q-space and nobody has written to it since."""
    return bool(getattr(gradient, IN_Q_SPACE, None) == _versions(gradient))


def of_q(gradient: Tensor, layer: Layer) -> Tensor:
    """The gradient as the inner optimizer sees it: of q, and 0 where pruned."""
    if is_in_q_space(gradient):
        return gradient * layer.kept if layer.pruned else gradient
    return gradient * layer.omega if layer.scaled or layer.pruned else gradient


def mark_in_q_space(gradient: Tensor) -> None:
    setattr(gradient, IN_Q_SPACE, _versions(gradient))


def _versions(gradient: Tensor) -> int | tuple[int, int]:
    """How often it was written to; FSDP2 adds to the shard alone, past the tensor around it."""
    version = gradient._version
    return (version, local(gradient)._version) if is_sharded(gradient) else version


def _gradient(layer: Layer) -> Any:
    return layer.param.grad


def _gradient_of_theta(layer: Layer) -> Tensor | None:
    """The gradient, unless it is in q-space already."""
    gradient = layer.param.grad
    return None if gradient is None or is_in_q_space(gradient) else gradient
