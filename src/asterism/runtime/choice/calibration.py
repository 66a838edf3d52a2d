"""How fast the kernels are on this machine: measured once and kept.

    asterism.runtime.calibrate()

Each kind of kernel runs a few small layers; how many times longer they take than the cost model
says is the factor by which the planner multiplies. Factors are kept in the user's cache folder, by
processor and by the instruction set of the kernels. A network that is loaded reads them if they are
there, and measures nothing: without them the constants of `cost` stand as they are, which is the
same on every machine. ASTERISM_CALIBRATION=none leaves them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np

import asterism.kernels.library as library
import asterism.runtime.choice.cost as cost
import asterism.runtime.choice.machine as machine
from asterism.graph.network import Graph, Node
from asterism.graph.stages import Array
from asterism.runtime.net import Net

RUNS = 7  # at least, and for as many seconds
FEW = 8  # images, one after the other: in a network a layer is rarely the first to run
PASSES = 2
WARM = 0.004  # a processor takes a while to have its widest vectors at full speed


class Trial(NamedTuple):
    """A small layer by which a kind of kernel is measured, as `cost` names it.

    batch  how many examples at once: a block, one, or a few
    """

    kind: str
    node: Node
    weight: tuple[int, ...]
    shape: tuple[int, ...]
    density: float
    batch: int = 1


def calibrate() -> dict[str, float]:
    """Measures the kernels on this machine, and keeps what it finds for all networks to come.

    It takes about two seconds; networks that were loaded before keep their plans. Gives the factors
    by kind of kernel: how many times longer each takes than the planner would think. There are none
    where no kernels are compiled. InputError if they cannot be kept; this process has them then.
    """
    found = library.load()
    if found is None:
        return {}
    trials = list(_trials())
    # The best of each, so that something else that runs meanwhile does not count.
    passes = [[_measure(trial) or math.inf for trial in trials] for _ in range(PASSES)]
    ratios: dict[str, list[float]] = {}
    for trial, ratio in zip(trials, np.min(passes, axis=0), strict=True):
        if ratio < math.inf:
            ratios.setdefault(trial.kind, []).append(math.log(ratio))
    factors = {
        kind: round(min(machine.MOST, max(machine.LEAST, math.exp(float(np.mean(logs))))), 3)
        for kind, logs in ratios.items()
    }
    machine.keep(library.choose_level(found), factors)
    return factors


def is_calibrated() -> bool:
    """Whether there is nothing left to calibrate."""
    found = library.load()
    if found is None or machine.is_off():
        return True
    return bool(machine.known(library.choose_level(found)))


# ---------------------------------------------------------------------- what is measured


def _trials() -> Iterator[Trial]:
    sparse, dense = 0.1, 1.0
    places = ((64, 25, 5), (32, 16, 16), (64, 8, 8))
    for shape in places:
        channels = shape[0]
        square, thin = _conv(3), _conv(1)
        for kind in ("sparse", "rows", "planes"):
            yield Trial(f"conv {kind}", square, (channels, channels, 3, 3), shape, sparse, FEW)
        yield Trial("conv planes", thin, (channels, channels, 1, 1), shape, 0.2, FEW)
        for kind in ("dense", "quads"):
            yield Trial(f"conv {kind}", square, (channels, channels, 3, 3), shape, dense, FEW)
        yield Trial("conv places", thin, (channels, channels, 1, 1), shape, dense, FEW)
        deep = _conv(3, channels)
        yield Trial("conv depthwise", deep, (channels, 1, 3, 3), shape, dense, FEW)
    for shape in ((8, 16, 16), (16, 10, 10)):
        inside = Node("conv", (0,), (0,))
        yield Trial("conv columns", inside, (16, shape[0], 3, 3), shape, sparse, 32)
    linear = Node("linear", (0,), (0,))
    for units in (256, 512):
        weight = (units, units)
        yield Trial("image sparse", linear, weight, (units,), 0.05)
        yield Trial("image dense", linear, weight, (units,), dense)
        yield Trial("block sparse", linear, weight, (units,), 0.05, 32)
        yield Trial("block dense", linear, weight, (units,), dense, 32)
        yield Trial("rows sparse", linear, weight, (8, units), 0.05)
        yield Trial("rows rows", linear, weight, (64, units), 0.05)
        yield Trial("rows dense", linear, weight, (64, units), dense)
    for units in (64, 256):
        layer = Node("lstm", (0,), (0, 1, None, None))
        yield Trial("recurrent sparse", layer, (4 * units, units), (8, units), 0.05)
        yield Trial("recurrent dense", layer, (4 * units, units), (8, units), dense)


def _conv(extent: int, groups: int = 1) -> Node:
    settings = {"padding_h": extent // 2, "padding_w": extent // 2, "groups": groups}
    return Node("conv", (0,), (0,), settings)


def _measure(trial: Trial) -> float | None:
    """How many times longer a layer takes than predicted; None where this kernel cannot run it."""
    many = trial.batch > 1
    with cost.planning_for(cost.Machine(only=frozenset([trial.kind]))):
        net = Net(Graph(trial.shape, (trial.node,)), _weights(trial))
        plan = net.plans[many]
        matrices = [weight for weight in net.weights[1:2] if trial.node.op == "lstm"]
        own = cost.recurrent(matrices, trial.shape[0]) if matrices else plan.choices[0]
    wanted = trial.kind.split()[1].replace("depthwise", "places")
    if own.kernel != wanted:
        return None
    x = np.ones((trial.batch, *trial.shape), np.float32)
    runs, started = [net._own.profile(x, many)], perf_counter()
    while len(runs) < RUNS or perf_counter() - started < WARM:
        runs.append(net._own.profile(x, many))
    times = np.min(runs, axis=0)
    # What the inputs add to a recurrent layer is a product over rows, and to turn a value is no
    # part of a convolution: both are predicted apart.
    mine = [step.kernel == "LSTM" if matrices else step.kernel != "TURN" for step in plan.steps]
    return float(times[mine].sum()) / trial.batch / own.seconds


def _weights(trial: Trial) -> dict[str, Array]:
    random = np.random.default_rng(0)
    count = 2 if trial.node.op == "lstm" else 1
    made = {}
    for name in range(count):
        kept = random.random(trial.weight) < trial.density
        made[str(name)] = (random.standard_normal(trial.weight) * kept).astype(np.float32)
    return made
