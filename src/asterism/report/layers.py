"""A network layer by layer: what is left of it, and what it takes in a file.

Owns the numbers of the per-layer table; draws nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from asterism.experiments.networks import INPUT_SHAPES, MODELS
from asterism.export.checkpoints import as_contents
from asterism.report.reading.account import Network
from asterism.weights.macs import macs
from asterism.weights.metrics import kurtosis, live_units
from asterism.weights.names import layer, owner


@dataclass(frozen=True)
class LayerSummary:
    """One line of the table.

    name             of the layer
    shape            of its weight
    entries          the weights that it has
    nonzeros         those of them that are left
    live             its outputs and its inputs that have any weight left
    kurtosis         of its weights
    kurtosis_before  of its weights before, where they are known
    bytes            that it takes in the file
    macs             multiplications of the dense layer and of the sparse one, where they are known
    """

    name: str
    shape: tuple[int, ...]
    entries: int
    nonzeros: int
    live: tuple[int, int]
    kurtosis: float | None
    kurtosis_before: float | None
    bytes: int
    macs: tuple[int, int] | None

    @property
    def density_percent(self) -> float:
        return 100 * self.nonzeros / self.entries if self.entries else math.nan


@dataclass(frozen=True)
class Size:
    """The whole network in memory and in a file; the file is that of `asterism.save`, lossless.

    dense_bytes  in memory, zeros and all
    file_bytes   in the file
    mode         of the file
    """

    dense_bytes: int
    file_bytes: int
    mode: str

    @property
    def ratio(self) -> float:
        return self.dense_bytes / self.file_bytes


def measure(network: Network) -> tuple[list[LayerSummary], Size]:
    """The rows of a network's table, and its size."""
    contents = as_contents(network.after)
    counted = _macs(network)
    rows = []
    for name in network.weights:
        weight = network.after[name]
        before = network.before.get(name) if network.before else None
        rows.append(
            LayerSummary(
                name=layer(name),
                shape=tuple(weight.shape),
                entries=weight.numel(),
                nonzeros=int(weight.count_nonzero()),
                live=live_units(weight),
                kurtosis=_finite(kurtosis(weight)),
                kurtosis_before=None if before is None else _finite(kurtosis(before)),
                bytes=round(contents.usage[name].bytes),
                macs=counted.get(layer(name)),
            )
        )
    dense = sum(array.nbytes for array in contents.tensors.values())
    return rows, Size(dense, contents.size, contents.mode)


def _macs(network: Network) -> dict[str, tuple[int, int]]:
    """Of a network whose forward is known; a folder of weights alone does not tell it."""
    if network.model not in MODELS:
        return {}
    model = MODELS[network.model]()
    model.load_state_dict(network.after)
    uses = macs(model, torch.zeros(1, *INPUT_SHAPES[network.model]))
    return {
        owner(name): (uses[param], uses[param] * int(param.count_nonzero()) // param.numel())
        for name, param in model.named_parameters()
        if param in uses and param.dim() > 1
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
