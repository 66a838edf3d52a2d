"""Sparse or dense? What each layer would cost, in cycles.

The cycles are estimates of what the instructions should take, not fitted to measurements:
`explain` shows both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asterism.runtime.lowering import Layer, live_outputs
from asterism.runtime.packing import Window
from asterism.runtime.shapes import kernel

CLOCK = 3e9
CONV_SPARSE, CONV_DENSE = 0.60, 0.53  # cycles for eight products
ONE_SPARSE, ONE_DENSE = 0.75, 0.15  # cycles for one product, one image
MANY_SPARSE, MANY_DENSE = 0.10, 0.045  # cycles for one product and image, in a block


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the seconds that it and its alternative should take for an image."""

    sparse: bool
    seconds: float
    otherwise: float
    density: float


def linear(layer: Layer, many: bool, rows: int) -> Choice:
    weight = layer.weight
    nonzeros = int(np.count_nonzero(weight))
    if many:
        sparse, dense = MANY_SPARSE * nonzeros, MANY_DENSE * weight.size
    else:
        sparse, dense = ONE_SPARSE * nonzeros * rows, ONE_DENSE * weight.size * rows
    return _choose(sparse, dense, nonzeros / max(1, weight.size))


def conv(layer: Layer, at: Window) -> Choice:
    weight = layer.weight
    outputs = live_outputs(layer)
    live = kernel(weight)[outputs].reshape(len(outputs), weight[0].size) != 0
    nonzeros = int(live.sum())
    # A dense tile holds four channels and skips what none of them has.
    padded = np.zeros((-(-len(outputs) // 4) * 4, live.shape[1]), bool)
    padded[: len(outputs)] = live
    quads = 4 * int(padded.reshape(-1, 4, live.shape[1]).any(1).sum())
    sparse, dense = CONV_SPARSE * nonzeros * at.units, CONV_DENSE * quads * at.units
    if layer.node["groups"] > 1:
        dense = np.inf
    return _choose(sparse, dense, np.count_nonzero(weight) / max(1, weight.size))


def _choose(sparse: float, dense: float, density: float) -> Choice:
    best = sparse <= dense
    one, other = (sparse, dense) if best else (dense, sparse)
    return Choice(best, one / CLOCK, other / CLOCK, density)
