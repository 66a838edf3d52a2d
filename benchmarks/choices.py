"""Does the planner choose well? Each layer by another kernel, while the others stay as planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

import numpy as np

import asterism.runtime.choice.machine as machine
from asterism.runtime import Net, calibrate
from asterism.runtime.choice.cost import KERNELS, Choice
from asterism.runtime.sized import FEW, Sized
from benchmarks.networks import CASES, Case, net, pruned

ROUNDS = 40
WORTH = 0.01  # of the network's time: layers below it are left out
HOPELESS = 4  # times as long as the kernel that was chosen, by the cost model: not tried


def report() -> Iterator[str]:
    factors = calibrate()
    yield "the planner's kernel against the best for each layer, one thread:"
    for case in CASES:
        for density in case.least:
            for batch in case.batches:
                for tune in (False, True):
                    yield compare(case, density, batch, tune)
    yield "  how many times longer kernels take here than its constants say:"
    yield "  " + ", ".join(f"{kind} {factor:.2f}" for kind, factor in factors.items())


def compare(case: Case, density: float, batch: int, tune: bool) -> str:
    """A line for a network: the layer that is farthest from its best kernel, and the whole.

    What a layer would gain by another kernel is what the whole network gains by it: some kernels
    leave their result as the next layer wants it, or rearrange an input that others read as well.
    """
    planned = net(pruned(case.make(), density).eval(), case.shape)
    if tune:
        planned.tune(max(batch, FEW))
    x, many = planned.example(batch)[0], batch >= FEW
    choices = planned.plans[many].choices
    others = with_other_kernels(planned, choices, many)
    own, *times = by_layer([planned._own, *others.values()], x, many)
    total = sum(own.values())
    best: dict[int, tuple[float, Sized]] = {}
    for ((place, _), other), time in zip(others.items(), times, strict=True):
        found = sum(time.values()), other
        best[place] = min(best.get(place, found), found, key=itemgetter(0))
    off = {place: 1.0 for place in choices if own[place] > WORTH * total}
    for place in off:
        if place in best and best[place][0] < total:  # measured again: the best of many is lucky
            now, then = by_layer([planned._own, best[place][1]], x, many)
            gain = sum(now.values()) - sum(then.values())
            off[place] = now[place] / min(max(now[place] - gain, now[place] / 10), now[place])
    worst = max(off, key=off.__getitem__)
    could = sum(own[place] / off[place] for place in off) / sum(own[place] for place in off)
    predicted = sum(choices[place].seconds for place in off) / sum(own[place] for place in off)
    name = f"{case.name:12} {100 * density:4.0f} %  batch {batch:3}  {'tuned' if tune else '     '}"
    names = {layer.place: layer.name for layer in planned.layers}
    return (
        f"  {name}  farthest from its best {off[worst]:.2f}× ({names[worst]},"
        f" {100 * own[worst] / total:.0f} % of the time); all of them {1 / could:.2f}×;"
        f" predicted {predicted:.2f} of the time"
    )


def with_other_kernels(
    planned: Net, choices: Mapping[int, Choice], many: bool
) -> dict[tuple[int, str], Sized]:
    """The network with one layer by another kernel, by that layer's place and the kernel."""
    network = planned._own
    known = network.machine(many) or machine.machine(network.level)
    found = {}
    for place, choice in choices.items():
        for kernel in KERNELS[choice.family]:
            taken = {**known.taken, place: f"{choice.family} {kernel}"}
            other = network.planned_for(*2 * [known._replace(taken=taken)])
            got = other.program(many).plans[many].choices[place]
            if got.kernel != choice.kernel and got.seconds < HOPELESS * choice.seconds:
                found[place, got.kernel] = other
    return found


def by_layer(networks: Sequence[Sized], x: np.ndarray, many: bool) -> list[dict[int, float]]:
    """Seconds of the layers of each network, by their places: of each step the fastest run."""
    steps = [each.program(many).plans[many].steps for each in networks]
    times = [np.full(len(each), np.inf) for each in steps]
    for _ in range(ROUNDS):
        for network, time in zip(networks, times, strict=True):
            for _ in range(2):  # the first brings the network's weights near
                np.minimum(time, network.profile(x, many), out=time)
    found = []
    for each, time in zip(steps, times, strict=True):
        layers: dict[int, float] = {}
        for step, seconds in zip(each, time, strict=True):
            layers[step.layer.place] = layers.get(step.layer.place, 0.0) + float(seconds) / len(x)
        found.append(layers)
    return found


if __name__ == "__main__":
    for line in report():
        print(line, flush=True)
