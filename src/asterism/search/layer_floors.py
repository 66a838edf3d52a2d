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
from asterism.weights.sharding import count_nonzero

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


def prune_above_floors(optimizer: SparseOptimizer, density: float, floors: Floors) -> None:
    """`optimizer.prune(density=density, at_most=True)`, where layers with a floor stop at it.

    optimizer  holds the network's weights
    density    of the whole network, an upper limit
    floors     the density that a layer may not fall below, by its name
    """
    alive = {name: count_nonzero(mask) for name, mask in optimizer.masks().items()}
    sizes = {name: weight.numel() for name, weight in optimizer.weights().items()}
    total = count(density, sum(sizes.values()))
    if not floors or total >= sum(alive.values()):
        return optimizer.prune(density=density, at_most=True)
    limits = {name: max(density, floors[name], 1 / sizes[name]) for name in floors}
    optimizer.prune(density=limits, at_most=True)
    # What the floors leave of the total is for the other layers, one weight each at the least.
    held = sum(min(alive[name], count(limits[name], sizes[name])) for name in floors)
    free = [name for name in sizes if name not in floors]
    if free:
        left = max(total - held, len(free)) / sum(sizes[name] for name in free)
        optimizer.prune(density=min(left, 1.0), at_most=True, include=free)
    return None
