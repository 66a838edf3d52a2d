"""The fastest kernel for each layer of a network: measured on this machine, not predicted.

The network runs once by every kind of kernel, wherever its layers can. How many times longer each
layer takes than the cost model says is its own factor for that kind, and the planner decides anew.
As layers owe each other something, such as a result that lies as the next one reads it, each of
them then tries what was nearly as fast, and keeps it if the whole network becomes faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic

import numpy as np

import asterism.runtime.choice.machine as machine
from asterism.graph.stages import Array
from asterism.runtime.choice.cost import KERNELS, Choice, Machine
from asterism.runtime.sized import Sized
from asterism.runtime.steps import KernelPlan

ROUNDS = 12  # of which the fastest counts: others were disturbed
LEAST, ENOUGH = 3, 0.5  # rounds that there must be, even where they take longer than these seconds
NEARLY = 1.5  # times the fastest kernel of a layer: others are not tried
WORTH = 0.99  # of the time before: what gains less may be chance


def tuned(network: Sized, x: Array) -> Sized:
    """A network with the plans that are fastest here.

    x  a batch of it, such as will come; its first example stands for single ones
    """
    families = {each.family for many in (False, True) for each in _choices(network, many).values()}
    kinds = [f"{family} {kernel}" for family in sorted(families) for kernel in KERNELS[family]]
    forced = {kind: _planned(network, Machine(only=frozenset([kind]))) for kind in kinds}
    few, many = (_tune(network, forced, batch) for batch in (x[:1], x))
    return network.planned_for(few, many)


def _tune(network: Sized, forced: Mapping[str, Sized], x: Array) -> Machine | None:
    """What the planner should know for a batch as large as `x`; as before if that is as good."""
    many = len(x) > 1
    able = {
        kind: places
        for kind, each in forced.items()
        if (places := [p for p, choice in _choices(each, many).items() if _kind(choice, kind)])
    }
    times = {
        (place, kind): time[place]
        for kind, time in zip(able, _measure([forced[kind] for kind in able], x, many), strict=True)
        for place in able[kind]
    }
    factors = {
        (place, kind): time / _choices(forced[kind], many)[place].seconds
        for (place, kind), time in times.items()
    }
    known = Machine(machine.machine(network.level).factors, layers=factors)
    best = _faster(network, _planned(network, known), x, many)
    for place, kind in _worth_trying(times):
        taken = {p: _name(choice, p, times) for p, choice in _choices(best, many).items()}
        if taken[place] != kind:
            other = _planned(network, known._replace(taken={**taken, place: kind}))
            best = _faster(best, other, x, many)
    return best.machine(many)


def _planned(network: Sized, known: Machine) -> Sized:
    return network.planned_for(known, known)


def _plan(network: Sized, many: bool) -> KernelPlan:
    return network.program(many).plans[many]


def _choices(network: Sized, many: bool) -> dict[int, Choice]:
    return _plan(network, many).choices


def _kind(choice: Choice, kind: str) -> bool:
    """Whether a choice is of a kind; a depthwise convolution goes by places, too."""
    return f"{choice.family} {choice.kernel}" == kind.replace("depthwise", "places")


def _name(choice: Choice, place: int, times: Mapping[tuple[int, str], float]) -> str:
    """The kind of a choice, as it was measured."""
    return next((kind for p, kind in times if p == place and _kind(choice, kind)), "")


def _worth_trying(times: Mapping[tuple[int, str], float]) -> list[tuple[int, str]]:
    """Layers and kinds of kernels that are not far from the best, those that take longest first."""
    best: dict[int, float] = {}
    for (place, _), time in times.items():
        best[place] = min(time, best.get(place, np.inf))
    near = [key for key, time in times.items() if time <= NEARLY * best[key[0]]]
    return sorted(near, key=lambda key: -best[key[0]])


def _faster(network: Sized, other: Sized, x: Array, many: bool) -> Sized:
    """Another network in place of one, if it is the faster."""
    now, then = (sum(each.values()) for each in _measure([network, other], x, many))
    return other if then < WORTH * now else network


def _measure(networks: Sequence[Sized], x: Array, many: bool) -> list[dict[int, float]]:
    """Seconds that layers take for an example, by their places, in each of the networks."""
    times = [np.full(len(_plan(each, many).steps), np.inf) for each in networks]
    begin = monotonic()
    for done in range(ROUNDS):
        if done >= LEAST and monotonic() - begin > ENOUGH:
            break
        for each, time in zip(networks, times, strict=True):
            np.minimum(time, each.profile(x, many), out=time)
    found = []
    for each, time in zip(networks, times, strict=True):
        by_layer: dict[int, float] = {}
        for step, seconds in zip(_plan(each, many).steps, time, strict=True):
            share = float(seconds) / len(x)
            by_layer[step.layer.place] = by_layer.get(step.layer.place, 0.0) + share
        found.append(by_layer)
    return found
