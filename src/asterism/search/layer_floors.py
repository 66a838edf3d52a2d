"""How far single layers may be cut: densities of their own, below which they do not fall.

Owns the cut of a network in which some layers have one. Such a layer falls with the network's
density until it is at its own; what it keeps beyond its share, the other layers do without.
"""

from __future__ import annotations

from collections.abc import Mapping

from asterism.errors import InputError
from asterism.pruning.scores import count
from asterism.scaling.sparse_optimizer import SparseOptimizer
from asterism.weights.names import check_patterns, lookup, matches

Floors = dict[str, float]


def find_floors(densities: Mapping[str, float], sizes: Mapping[str, int]) -> Floors:
    """By layer the density that it may not fall below, of those that a pattern names.

    >>> find_floors({"conv*": 0.5}, {"conv1.weight": 500, "fc1.weight": 400_000})
    {'conv1.weight': 0.5}
    """
    check_patterns(densities, sizes)
    for pattern, density in densities.items():
        if not 0 < density <= 1:
            raise InputError(f"densities must lie in (0, 1], got {density} for {pattern!r}")
    named = [name for name in sizes if matches(name, densities)]
    return {name: lookup(densities, name, "density") for name in named}


def fewest(floors: Floors, sizes: Mapping[str, int]) -> int:
    """The weights of the sparsest network there can be: one in each layer, or its floor.

    >>> fewest({"conv1.weight": 0.5}, {"conv1.weight": 500, "fc1.weight": 400_000})
    251
    """
    return sum(max(1, count(floors[name], sizes[name])) if name in floors else 1 for name in sizes)


def cut_down_to(density: float, floors: Floors, optimizer: SparseOptimizer) -> None:
    """A global cut to the density of the network, unless it is as sparse already."""
    masks = optimizer.masks()
    sizes = {name: mask.numel() for name, mask in masks.items()}
    alive = {name: int(mask.sum()) for name, mask in masks.items()}
    left = count(density, sum(sizes.values()))
    if left >= sum(alive.values()):
        return
    for name, floor in floors.items():
        keep = max(1, min(alive[name], count(max(density, floor), sizes[name])))
        left -= keep
        if keep < alive[name]:
            optimizer.prune(density={name: keep / sizes[name]})
    free = [name for name in sizes if name not in floors]
    left = max(left, len(free))
    if left < sum(alive[name] for name in free):
        optimizer.prune(density=left / sum(sizes[name] for name in free), include=free)
