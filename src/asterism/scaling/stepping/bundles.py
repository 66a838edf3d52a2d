"""Many little layers as one: theta → q, the inner step and q → theta of all of them together.

To hand a layer over to torch takes longer than a little layer's arithmetic, and an inner step does
that several times. Layers of one parameter group take their step as one row of numbers: a compiled
pass brings q and its gradient there, the inner optimizer's code runs on that row, and a second pass
brings theta back. Their inner state becomes views of one tensor. As in blocks, parameters never
hold q, and gradients stay those of theta.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism.scaling.layer import Layer, in_memory
from asterism.scaling.stepping.compiled import CompiledLayers, takes
from asterism.scaling.stepping.parts import Regularise, is_divisible, make_part, takes_any_part
from asterism.scaling.stepping.q_space import is_in_q_space

LITTLE = 2**14  # weights of a layer that takes longer to hand over than to compute
FEW = 16  # layers that are not worth an inner step of their own
SIZE = 2**18  # weights in a bundle: they fit in the cache

State = dict[str, Any]
Member = tuple[Layer, State]


class Bundles:
    """The little layers of a step, bundled anew whenever one of their states is another."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = [layer for layer in layers if _is_little(layer)]
        self.bundles: list[Bundle] = []
        self.made_for: tuple[Any, ...] = ()
        self.values: list[Any] = []

    def ready(self, optimizer: Optimizer) -> list[Bundle]:
        """Those that can take this step.

        optimizer  the inner one
        """
        if len(self.layers) < FEW or not takes_any_part(optimizer):
            return []
        states = [optimizer.state.get(layer.param) or {} for layer in self.layers]
        made_for = optimizer, *(len(group["params"]) for group in optimizer.param_groups)
        if made_for != self.made_for or not _are(_values(states), self.values):
            self._bundle(optimizer, states)
            self.made_for, self.values = made_for, _values(states)
        return [bundle for bundle in self.bundles if bundle.is_ready()]

    def _bundle(self, optimizer: Optimizer, states: Sequence[State]) -> None:
        groups = optimizer.param_groups
        group_of = {id(param): at for at, group in enumerate(groups) for param in group["params"]}
        alike: dict[tuple[int, int, Hashable], list[Member]] = defaultdict(list)
        for layer, state in zip(self.layers, states, strict=True):
            at = group_of[id(layer.param)]
            if is_divisible(optimizer, groups[at], state) and _lies_as(state, layer):
                alike[at, layer.penalty.order, _numbers(state)].append((layer, state))
        some = [(at, part) for (at, *_), members in alike.items() for part in _portions(members)]
        most = max((_weights(part) for _, part in some), default=0)
        room = torch.empty(2, most)
        self.bundles = [Bundle(optimizer, at, part, room) for at, part in some]


class Bundle:
    """Layers that take their step as one.

    optimizer  the inner one
    group      the number of their parameter group
    members    the layers, each with its state
    room       for q and its gradient; all bundles share it
    """

    def __init__(
        self, optimizer: Optimizer, group: int, members: Sequence[Member], room: Tensor
    ) -> None:
        self.optimizer, self.group = optimizer, group
        self.layers = [layer for layer, _ in members]
        self.states = [state for _, state in members]
        self.compiled = CompiledLayers(self.layers)
        self.q = nn.Parameter(room[0, : _weights(members)])
        self.q.grad = room[1, : _weights(members)]
        first = self.states[0]
        self.numbers = {key: self._stack(key) for key, value in first.items() if not value.ndim}
        self.tensors = {key: self._join(key) for key, value in first.items() if value.ndim}

    def _stack(self, key: str) -> Tensor:
        """One tensor for a number of all states, such as the count of steps."""
        numbers = torch.stack([state[key] for state in self.states])
        for state, number in zip(self.states, numbers.unbind(), strict=True):
            state[key] = number
        return numbers

    def _join(self, key: str) -> Tensor:
        """One row for what all states have of each weight."""
        row = torch.cat([in_memory(state[key]) for state in self.states])
        at = 0
        for layer, state in zip(self.layers, self.states, strict=True):
            omega = layer.omega
            state[key] = row.as_strided(omega.shape, omega.stride(), at)
            at += omega.numel()
        return row

    def is_ready(self) -> bool:
        """Whether settings, parameters and gradients are such that the bundle can take a step."""
        if not is_divisible(self.optimizer, self._settings(), self.states[0]):
            return False
        if not self.compiled.in_place():
            if not all(map(takes, self.layers)):
                return False
            self.compiled = CompiledLayers(self.layers)
        gradients = self._gradients()
        return self.compiled.fits(gradients) and not any(map(is_in_q_space, gradients))

    def step(self, regularise: Regularise) -> None:
        """One step of all these layers.

        regularise  what becomes of q after the inner step
        """
        q = self.q
        assert q.grad is not None
        self.compiled.bundle(self._gradients(), q, q.grad)
        numbers = {key: of_all[0].clone() for key, of_all in self.numbers.items()}
        make_part(self.optimizer, self._settings(), q, self.tensors | numbers).step()
        regularise(self.layers[0], q)
        self.compiled.unbundle(q)
        for key, of_all in self.numbers.items():
            of_all.copy_(numbers[key])

    def _settings(self) -> dict[str, Any]:
        return self.optimizer.param_groups[self.group]

    def _gradients(self) -> list[Any]:
        return [layer.param.grad for layer in self.layers]


def _is_little(layer: Layer) -> bool:
    plain = layer.latent is None and layer.groups is None
    return plain and layer.omega.numel() <= LITTLE and takes(layer)


def _values(states: Sequence[State]) -> list[Any]:
    return [value for state in states for value in state.values()]


def _are(found: Sequence[Any], known: Sequence[Any]) -> bool:
    return len(found) == len(known) and all(map(is_, found, known))


def _lies_as(state: State, layer: Layer) -> bool:
    """Whether a state is numbers alone: one, or one for each weight in the order of omega."""
    form = layer.omega.dtype, layer.omega.shape, layer.omega.stride()
    tensors = [value for value in state.values() if isinstance(value, Tensor) and value.is_cpu]
    return len(tensors) == len(state) and all(
        not each.ndim or (each.dtype, each.shape, each.stride()) == form for each in tensors
    )


def _numbers(state: State) -> tuple[Hashable, ...]:
    """What must be equal in all states of a bundle."""
    return *state, *((each.dtype, each.item()) for each in state.values() if not each.ndim)


def _weights(members: Sequence[Member]) -> int:
    return sum(layer.omega.numel() for layer, _ in members)


def _portions(members: Sequence[Member]) -> Iterator[list[Member]]:
    """Layers that are worth a step, of about as many weights as fit in the cache."""
    portions: dict[int, list[Member]] = defaultdict(list)
    before = 0
    for member in members:
        portions[before // SIZE].append(member)
        before += member[0].omega.numel()
    return (portion for portion in portions.values() if len(portion) >= FEW)
