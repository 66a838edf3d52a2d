"""Large layers a block at a time: theta → q, the inner step and q → theta within the cache.

Around whole layers the change of variables is three passes over memory beside those of the inner
optimizer. A block takes its step alone: the inner optimizer's code runs on a copy of the block's q
and gradient, and on views of its state. The parameter never holds q, and its gradient stays one of
theta.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism.scaling.layer import Layer, in_memory
from asterism.scaling.stepping.parts import (
    Group,
    Regularise,
    is_divisible,
    make_part,
    takes_any_part,
)
from asterism.scaling.stepping.q_space import is_in_q_space
from asterism.weights.sharding import any_shard, extremes, local, sum_over_shards

SIZE = 2**18  # weights in a block for each thread: fewer, and Python takes longer than the step
MOST_THREADS = 4  # that add to a block's size, as they share a cache
LARGE = 2**19  # weights of a layer that is worth dividing: its numbers are too many for the cache


class Blocks:
    """The layers of one step that are taken in blocks."""

    def __init__(self, optimizer: Optimizer, layers: Sequence[Layer]) -> None:
        self.optimizer = optimizer
        fit = bool(layers) and takes_any_part(optimizer)
        self.groups = _groups(optimizer, layers) if fit else {}
        self.layers = [layer for layer in layers if fit and self._divides(layer)]

    def step(self, regularise: Regularise) -> None:
        """One step of all these layers.

        regularise  what becomes of a block's q after the inner step
        """
        for layer in self.layers:
            self._step(layer, regularise)

    def _divides(self, layer: Layer) -> bool:
        """Whether gradient and state are there, in the order of omega's memory."""
        gradient, group = layer.param.grad, self.groups.get(layer.param, {})
        if gradient is None or is_in_q_space(gradient) or not layer.scaled or layer.pruned:
            return False
        state = self.optimizer.state.get(layer.param, {})
        if layer.groups is not None or not is_divisible(self.optimizer, group, state):
            return False
        tensors = [value for value in state.values() if isinstance(value, Tensor) and value.ndim]
        return all(_lies_as(each, layer) for each in (layer.param, gradient, *tensors))

    def _step(self, layer: Layer, regularise: Regularise) -> None:
        theta, omega = in_memory(local(layer.param.detach())), in_memory(local(layer.omega))
        assert layer.param.grad is not None
        gradient = in_memory(local(layer.param.grad))
        state = self.optimizer.state.get(layer.param, {})
        q = nn.Parameter(torch.empty(0))
        for here in _places(len(theta)):
            scale = omega[here]
            if len(q) != len(scale):  # memory that all blocks share: to ask for it takes long
                q = nn.Parameter(torch.empty_like(scale))
            q.grad = torch.mul(gradient[here], scale, out=q.grad)
            torch.div(theta[here], scale, out=q.detach())
            part = make_part(self.optimizer, self.groups[layer.param], q, _cut(state, here))
            part.step()
            regularise(layer, q)
            torch.mul(q, scale, out=theta[here])
        if state:
            _count(state, part.state[q])


def _places(size: int) -> Iterator[slice]:
    length = SIZE * min(torch.get_num_threads(), MOST_THREADS)
    return (slice(start, min(start + length, size)) for start in range(0, size, length))


def _cut(state: Mapping[str, Any], here: slice) -> dict[str, Any]:
    """A block's part of a state; numbers, such as the count of steps, as copies."""
    return {key: _part_of(value, here) for key, value in state.items()}


def _part_of(value: Any, here: slice) -> Any:
    if not isinstance(value, Tensor):
        return value
    return in_memory(local(value))[here] if value.ndim else value.clone()


def _count(state: dict[str, Any], counted: Mapping[str, Any]) -> None:
    """The numbers of a state, from that of its last block."""
    for key, value in counted.items():
        if not isinstance(value, Tensor):
            state[key] = value
        elif not value.ndim:
            state[key].copy_(value)


# ---------------------------------------------------------------------- a re-weighting


def reweight_in_blocks(layer: Layer, normalise: bool) -> bool:
    """The greedy re-weighting of a large layer: q stays, and theta ← q ⊙ omega.

    All blocks are looked at first, and changed then: no tensor of the layer's size is made. False,
    and nothing is changed, where the layer is another one, or its new omega not plainly a scale.

    normalise  whether the layer's norm stays as it is
    """
    fits = not layer.pruned and _lies_as(layer.param, layer)
    if layer.omega.numel() < LARGE or layer.groups is not None or any_shard(not fits, layer.omega):
        return False
    squares = torch.zeros(2, dtype=torch.float64)
    bounds = []
    for theta, _, q, omega in _next_blocks(layer):
        moved = q * omega
        squares += torch.stack([torch.linalg.vector_norm(each) for each in (theta, moved)]) ** 2
        bounds.append((*extremes(omega), *extremes(moved)))
    before, after = sum_over_shards(squares, layer.omega).sqrt().tolist()
    factor = before / after if normalise and after > 0 else 1.0
    numbers = torch.finfo(layer.omega.dtype)
    if any_shard(not all(_is_scale(numbers, factor, *each) for each in bounds), layer.omega):
        return False
    for theta, scale, q, omega in _next_blocks(layer):
        torch.mul(omega, factor, out=scale)
        torch.mul(q, scale, out=theta)
    layer.mark_scaled()
    return True


def _is_scale(
    numbers: torch.finfo, factor: float, low: float, high: float, least: float, most: float
) -> bool:
    """Whether omega, from low to high, is positive, and theta, from least to most, is finite."""
    return low * factor > numbers.tiny and all(
        abs(each) * factor < numbers.max / 2 for each in (high, least, most)
    )


def _next_blocks(layer: Layer) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """theta and omega of each block as they are, then q and the next omega."""
    thetas, omegas = in_memory(local(layer.param.detach())), in_memory(local(layer.omega))
    for here in _places(len(thetas)):
        theta, omega = thetas[here], omegas[here]
        q = theta / omega if layer.scaled else theta
        yield theta, omega, q, layer.penalty.omega(theta.abs(), layer.scale, previous=omega)


# ---------------------------------------------------------------------- what can be divided


def is_large(layer: Layer) -> bool:
    """Whether a layer is worth dividing, where that is possible."""
    omega = local(layer.omega)
    return omega.numel() >= LARGE and omega.is_cpu


def _groups(optimizer: Optimizer, layers: Sequence[Layer]) -> dict[nn.Parameter, Group]:
    wanted = {layer.param for layer in layers}
    return {
        param: group
        for group in optimizer.param_groups
        for param in group["params"]
        if param in wanted
    }


def _lies_as(tensor: Tensor, layer: Layer) -> bool:
    omega, tensor = local(layer.omega), local(tensor)
    return (
        tensor.layout is torch.strided
        and tensor.dtype is omega.dtype
        and tensor.shape == omega.shape
        and tensor.stride() == omega.stride()
        and tensor.is_cpu
    )
