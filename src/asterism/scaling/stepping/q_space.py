"""The way from theta to q and back, for all layers at once, in place.

Owns the arithmetic of one optimizer step around the inner step, and its safety: whatever happens
inside, the model ends in theta-space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from asterism.scaling.layer import Layer
from asterism.scaling.stepping import inner_optimizer as inner
from asterism.scaling.stepping.compiled import CompiledLayers, takes
from asterism.scaling.stepping.interrupts import uninterrupted
from asterism.weights.sharding import local

Closure = Callable[[], Any]

# On a gradient in q-space: its versions then. Whoever writes to it makes it one of theta.
IN_Q_SPACE = "_asterism_in_q_space"


class QSpace:
    """Between `enter` and `leave` parameters hold q and gradients are those of q.

    Both know where they stand, so that leaving twice is leaving once.

    layers  those of a step; sorted once, for as long as none of them changes
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers
        self.inside = False
        self._sort()

    def _sort(self) -> None:
        self.latent = [layer for layer in self.layers if layer.latent is not None]
        direct = [layer for layer in self.layers if layer.latent is None]
        direct = [layer for layer in direct if layer.scaled or layer.pruned]
        self.compiled = CompiledLayers([layer for layer in direct if takes(layer)])
        others = [layer for layer in direct if not takes(layer)]
        self.whole = [layer for layer in others if not layer.pruned]
        self.pruned = [layer for layer in others if layer.pruned]
        self.direct = (*self.compiled.layers, *self.whole, *self.pruned)
        self.any_scaled = any(layer.scaled for layer in direct)

    @uninterrupted()
    def enter(self, optimizer: Optimizer) -> None:
        """theta → q, and gradients of theta → gradients of q; straight through where latent.

        optimizer  the inner one
        """
        self.optimizer = optimizer
        if not self.compiled.in_place():
            self._sort()
        for layer in self.latent:
            assert layer.latent is not None
            layer.param.copy_(layer.latent)
        # What stands where a weight is pruned is nothing to an elementwise optimizer.
        zero = not inner.is_elementwise(optimizer)
        if self.any_scaled or (zero and self.direct):
            self._scale(zero)
        self.inside = True

    def _scale(self, zero: bool) -> None:
        _separate_gradients(self.optimizer, self.direct)
        of_compiled = _gradients_of_theta(self.compiled.layers, zero)
        of_whole = _gradients_of_theta(self.whole, zero)
        of_pruned = _gradients_of_theta(self.pruned, zero)
        self.compiled.to_q(of_compiled, zero=zero)
        _to_q(self.whole, of_whole)
        for layer, gradient in zip(self.pruned, of_pruned, strict=True):
            if layer.scaled:
                layer.divide_(layer.param)
            if gradient is not None:
                layer.multiply_(gradient, zero=zero)
        # At the end: gradients that are views of one bucket share their version.
        for gradient in (*of_compiled, *of_whole, *of_pruned):
            if gradient is not None:
                mark_in_q_space(gradient)

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
        by_torch = self.pruned
        if self.compiled.in_place():
            self.compiled.to_theta()
        else:  # the inner optimizer has put parameters elsewhere
            by_torch = [*self.compiled.layers, *by_torch]
        for layer in by_torch:
            layer.multiply_(layer.param)
        if self.whole:
            qs: list[Any] = [layer.param for layer in self.whole]
            torch._foreach_mul_(qs, [layer.omega for layer in self.whole])
        if restore:
            self._restore_gradients()
        self.inside = False

    def _restore_gradients(self) -> None:
        for layer in self.direct:
            gradient = layer.param.grad
            if gradient is not None and is_in_q_space(gradient):
                delattr(gradient, IN_Q_SPACE)
                if layer.scaled:
                    layer.divide_(gradient)

    @torch.no_grad()
    def evaluate(self, closure: Closure) -> Any:
        """The user's closure sees theta, and its gradients reach the optimizer in q-space."""
        self.leave(restore=True)
        with torch.enable_grad():
            loss = closure()
        self.enter(self.optimizer)
        return loss


def _to_q(layers: Sequence[Layer], gradients: Sequence[Tensor | None]) -> None:
    """By torch, in layers of which nothing is pruned; gradients that are None stay as they are."""
    if not layers:
        return
    thetas: list[Any] = [layer.param for layer in layers]
    torch._foreach_div_(thetas, [layer.omega for layer in layers])
    given = [(each, layer.omega) for each, layer in zip(gradients, layers, strict=True)]
    some = [(each, omega) for each, omega in given if each is not None]
    if some:
        torch._foreach_mul_([each for each, _ in some], [omega for _, omega in some])


def _separate_gradients(optimizer: Optimizer, layers: Sequence[Layer]) -> None:
    """A gradient of its own, that can be written to, for each layer: users may set any tensor."""
    held = [param.grad for group in optimizer.param_groups for param in group["params"]]
    ids = [id(gradient) for gradient in held if gradient is not None]
    shared = {each for each, times in Counter(ids).items() if times > 1}
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
    marked = getattr(gradient, IN_Q_SPACE, None)
    return marked is not None and bool(marked == _version(gradient))


def of_q(gradient: Tensor, layer: Layer) -> Tensor:
    """The gradient as the inner optimizer sees it: of q, and 0 where pruned."""
    if is_in_q_space(gradient):
        return gradient * layer.kept if layer.pruned else gradient
    return gradient * layer.omega if layer.scaled or layer.pruned else gradient


def mark_in_q_space(gradient: Tensor) -> None:
    setattr(gradient, IN_Q_SPACE, _version(gradient))


def _version(gradient: Tensor) -> int:
    """How often it was written to; FSDP2 adds to the shard alone, past the tensor around it."""
    return local(gradient)._version


def _gradients_of_theta(layers: Sequence[Layer], zero: bool) -> list[Tensor | None]:
    """Those that become gradients of q; None for one that is of q already, or stays as it is.

    zero  whether those of pruned weights become 0, in layers that are not scaled too
    """
    found = [layer.param.grad if zero or layer.scaled else None for layer in layers]
    return [None if each is None or is_in_q_space(each) else each for each in found]
