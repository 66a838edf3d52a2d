"""Does the planner choose well? Each layer by its kernel, and by every other that can run it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import asterism.runtime.choice.cost as cost
from asterism.runtime import Net, calibrate
from asterism.runtime.choice.cost import KINDS
from asterism.runtime.sized import FEW
from benchmarks.networks import CASES, Case, net, pruned

ROUNDS = 40
WORTH = 0.01  # of the network's time: layers below it are left out


def report() -> Iterator[str]:
    factors = calibrate()
    yield "the planner's kernel against the best for each layer, one thread:"
    for case in CASES:
        for density in case.least:
            for batch in case.batches:
                for tune in (False, True):
                    yield from compare(case, density, batch, tune)
    yield "  how many times longer kernels take here than its constants say:"
    yield "  " + ", ".join(f"{kind} {factor:.2f}" for kind, factor in factors.items())


def compare(case: Case, density: float, batch: int, tune: bool) -> Iterator[str]:
    """A line for a network: the layer that is farthest from its best kernel, and the whole.

    To rearrange a value is part of the layer that reads it. A kernel that spares the next layer
    this may be chosen though it is not the best by itself.
    """
    model = pruned(case.make(), density).eval()
    own, others = net(model, case.shape), {}
    if tune:
        own.tune(max(batch, FEW))
    own.plans  # noqa: B018  before anything is forced
    for kind in KINDS:
        with cost.planning_for(cost.Machine(cost.machine().factors, frozenset([kind]))):
            others[kind] = net(model, case.shape)
            others[kind].plans  # noqa: B018
    times = {kind: np.inf * np.ones(len(own.layers)) for kind in ("own", *others)}
    x = own.example(batch)[0]
    for _ in range(ROUNDS):
        for kind, each in (("own", own), *others.items()):
            times[kind] = np.minimum(times[kind], by_layer(each, x))
    choices = own.plans[batch >= FEW].choices
    predicted = sum(choice.seconds for choice in choices.values())
    weighted = np.array([layer.place in choices for layer in own.layers])
    chosen = times.pop("own") * weighted  # the others have one kernel each
    best = np.min([chosen, *(time * weighted for time in times.values())], axis=0)
    counts = chosen > WORTH * chosen.sum()
    off = np.ones(len(chosen))
    off[counts] = chosen[counts] / best[counts]
    worst = int(off.argmax())
    name = f"{case.name:12} {100 * density:4.0f} %  batch {batch:3}  {'tuned' if tune else '     '}"
    yield (
        f"  {name}  worst layer {off[worst]:.2f}× its best ({own.layers[worst].name}); all of them"
        f" {chosen.sum() / best.sum():.2f}×; predicted {predicted / chosen.sum():.2f} of the time"
    )


def by_layer(each: Net, x: np.ndarray) -> np.ndarray:
    """Seconds of each layer, for one example."""
    many = len(x) >= FEW
    places = {layer.place: i for i, layer in enumerate(each.layers)}
    times = np.zeros(len(places))
    for step, seconds in zip(each.plans[many].steps, each._own.profile(x, many), strict=True):
        times[places[step.layer.place]] += seconds / len(x)
    return times


if __name__ == "__main__":
    for line in report():
        print(line, flush=True)
