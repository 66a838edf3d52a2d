"""Sparse or dense? What each layer would cost, in cycles.

The constants were measured on AVX-512 (Ice Lake) and AVX2 (Zen 3) machines, and those of vectors of
eight hold on AVX-512 too (Zen 4); what matters is which kernel comes out as the fastest. A machine
that was calibrated (`calibration`) has a factor for each kind of kernel, and a network that was
tuned (`tuning`) for each of its layers. `explain` shows predicted and measured time. Vectors of
sixteen have the Ice Lake lower its clock by a fifth: a small network is faster without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from asterism.graph.operations.convolution import by_place, live_outputs
from asterism.graph.stages import Array, FusedLayer
from asterism.runtime.layers.packing import BLOCK, count_loads
from asterism.runtime.layers.windows import CACHE, Window, parts

CLOCK = 3e9
CONV_SPARSE, CONV_DENSE, CONV_PUT = 0.85, 0.55, 3.5  # cycles for eight products; eight results
PACK, FLAT_PACK, ROWS_PACK, TURN = 0.5, 2.5, 0.35, 0.8  # cycles for a number
STRIDED_PACK = 3.3  # the same, where not all of a row is taken
COLUMNS_SPARSE, COLUMNS_FAR = 0.95, 1.35  # cycles for a vector of products; from a farther cache
COLUMNS_FARTHEST = {4: 2.7, 8: 2.7, 16: 1.35}  # from one that is farther still, by lanes
COLUMNS_SHARED = {4: 0.9, 8: 0.9, 16: 0.4}  # of inputs loaded already, by lanes
ROWS_SPARSE = {8: 1.4, 16: 1.25}  # cycles for sixteen products
ROWS_SHARED = {8: 1.1, 16: 0.48}  # of inputs loaded already
ROWS_SHIFT = {8: 3.3, 16: 1.5}  # cycles to shift sixteen sums
PLANES_SPARSE, PLANES_FAR, PLANES_DENSE = 0.92, 1.15, 0.55  # cycles for a vector of products
PLANES_PUT, PLANES_TILE, SPREAD = 2.0, 15, 0.45  # for a vector of results; a tile; a number
PLANES_ADDED = 1.5  # for a vector that is added to results
PLANES_SHORT = 0.65  # of all that, where it is in whole numbers of 16 bits
PLANES_SPLIT = {4: 0.0, 8: 0.1, 16: 0.4}  # more, for a vector of products across two cache lines
PLACES_DENSE = {4: 0.51, 8: 0.51, 16: 0.37}  # for a vector of products, by lanes
PLACES_3X3, PLACES_DEPTHWISE = 0.72, 1.3  # the same of depthwise convolutions
PLACES_TURN = 0.4  # for a number
ONE_SPARSE, ONE_DENSE, ONE_FAR = 1.07, 0.2, 0.4  # cycles for one product, one image; from afar
RECURRENT, GATES = 0.7, 3.1  # cycles for one product of a recurrent layer; for one of its sums
MANY_SPARSE = 0.112  # cycles for one product and image, in a block
MANY_DENSE = {4: 0.14, 8: 0.07, 16: 0.043}  # the same of a dense layer, by lanes
PANELS = {4: 16, 8: 16, 16: 48}  # outputs that it computes at once; fewer take as long
NEAR = 2**19  # bytes of weights that stay in the second-level cache

KERNELS = {  # of each family
    "conv": ("sparse", "dense", "rows", "columns", "planes", "quads", "places", "depthwise"),
    "image": ("sparse", "dense"),
    "block": ("sparse", "dense"),
    "rows": ("sparse", "rows", "dense"),
    "recurrent": ("sparse", "dense"),
}
KINDS = tuple(f"{family} {kernel}" for family in KERNELS for kernel in KERNELS[family])


class Machine(NamedTuple):
    """What is known of the machine that is planned for.

    factors  by kind, as in "conv planes": how many times longer kernels take here than they should
    only     kinds that are taken wherever they can be, for the sake of measuring them
    layers   factors of a layer, by its place in the graph and by kind, where they were measured
    taken    kinds that layers take if they can, by their places
    """

    factors: Mapping[str, float] = MappingProxyType({})
    only: frozenset[str] = frozenset()
    layers: Mapping[tuple[int, str], float] = MappingProxyType({})
    taken: Mapping[int, str] = MappingProxyType({})

    def wants(self, kind: str, place: int) -> bool:
        """Whether the layer at a place is to take this kind of kernel if it can."""
        return kind in self.only or kind == self.taken.get(place)

    def seconds(self, kind: str, cycles: float, place: int) -> float:
        """What a kernel takes here for the layer at a place."""
        factor = self.layers.get((place, kind)) or self.factors.get(kind, 1.0)
        return cycles / CLOCK * factor


# What planning is for; None: for the machine as it was calibrated.
MACHINE: ContextVar[Machine | None] = ContextVar("machine", default=None)


def machine() -> Machine:
    """The machine that is planned for."""
    return MACHINE.get() or Machine()


@contextmanager
def planning_for(known: Machine | None) -> Iterator[None]:
    """Has `machine` be this one meanwhile."""
    token = MACHINE.set(known)
    try:
        yield
    finally:
        MACHINE.reset(token)


class WholeChannels(NamedTuple):
    """What a convolution over whole channels takes, each of them one long row.

    length  numbers of a channel
    spread  those to spread before that; a row counts as eight more
    near    whether the inputs of a tile stay in the first-level cache
    short   whether it may be in whole numbers of 16 bits
    """

    length: int
    spread: int
    near: bool
    short: bool = False


class Choice(NamedTuple):
    """The kernel chosen, and the seconds that it and the next best should take for an image."""

    kernel: str
    seconds: float
    otherwise: float
    density: float
    family: str

    @property
    def sparse(self) -> bool:
        return self.kernel not in ("dense", "quads", "places")


def linear(layer: FusedLayer, many: bool, rows: int, turned: int, lanes: int) -> Choice:
    """The kernel of a fully connected layer.

    many    whether it is for blocks of images
    rows    of inputs in one image
    turned  numbers to turn into columns if it is to be sparse, or back (< 0) if dense
    lanes   floats in a vector
    """
    weight = layer.weight
    nonzeros = int(np.count_nonzero(weight))
    if many:
        sparse = MANY_SPARSE * nonzeros + TURN * max(turned, 0)
        panels = -(-len(weight) // PANELS[lanes]) * PANELS[lanes]
        dense = MANY_DENSE[lanes] * panels * weight.shape[1] + TURN * max(-turned, 0)
    else:
        per_product = ONE_DENSE if weight.nbytes < NEAR else ONE_FAR
        sparse, dense = ONE_SPARSE * nonzeros * rows, per_product * weight.size * rows
    family = "block" if many else "image"
    costs = {"sparse": sparse, "dense": dense}
    return _choose(family, costs, nonzeros / max(1, weight.size), layer.place)


def over_rows(layer: FusedLayer, rows: int, lanes: int) -> Choice:
    """A matrix times each of many rows: row by row, in blocks of rows as columns, or dense."""
    weight = layer.weight
    nonzeros, (outputs, inputs) = int(np.count_nonzero(weight)), weight.shape
    blocks = -(-rows // BLOCK) * BLOCK
    panels = -(-outputs // PANELS[lanes]) * PANELS[lanes]
    costs = {
        "sparse": ONE_SPARSE * nonzeros * rows,
        "rows": MANY_SPARSE * nonzeros * blocks + TURN * rows * (inputs + outputs),
        "dense": MANY_DENSE[lanes] * panels * inputs * max(rows, 4),
    }
    return _choose("rows", costs, nonzeros / max(1, weight.size), layer.place)


def recurrent(matrices: Sequence[Array], steps: int, place: int = 0) -> Choice:
    """The matrices of a recurrent layer, one product after the other; and its place."""
    nonzeros = sum(int(np.count_nonzero(matrix)) for matrix in matrices)
    size = sum(matrix.size for matrix in matrices)
    per_product = ONE_DENSE if 4 * size < NEAR else ONE_FAR
    gates = GATES * sum(len(matrix) for matrix in matrices)
    costs = {
        "sparse": (RECURRENT * nonzeros + gates) * steps,
        "dense": (per_product * size + gates) * steps,
    }
    return _choose("recurrent", costs, nonzeros / max(1, size), place)


def conv(
    layer: FusedLayer,
    at: Window,
    rows: Window | None,
    to_pack: int,
    turned: int | None,
    planes: WholeChannels | None,
    liked: frozenset[str],
    lanes: int,
) -> Choice:
    """The kernel of a convolution; of those that may be None, None is one that cannot run it.

    at       its window strip by strip
    rows     in whole rows
    to_pack  numbers to pack for that
    turned   numbers to turn if it is to run on columns
    planes   what it takes to run on whole channels
    liked    kernels that leave the result as all who read it want it; none if they disagree
    lanes    floats in a vector
    """
    weight = layer.weight
    outputs = live_outputs(layer)
    extent = by_place(weight).shape[1:]
    live = by_place(weight)[outputs].reshape(len(outputs), weight[0].size) != 0
    nonzeros = int(live.sum())
    # A dense tile holds four channels and skips what none of them has.
    padded = np.zeros((-(-len(outputs) // 4) * 4, live.shape[1]), bool)
    padded[: len(outputs)] = live
    quads = 4 * int(padded.reshape(-1, 4, live.shape[1]).any(1).sum())
    vectors = at.units * max(1, 8 // lanes)
    strided = at.stride != (1, 1)
    pack = STRIDED_PACK if strided else FLAT_PACK if at.flat else PACK
    shared = CONV_PUT * len(outputs) * vectors + pack * at.packed
    costs = {"sparse": CONV_SPARSE * nonzeros * vectors + shared}
    if layer.node["groups"] == 1:
        costs["dense"] = CONV_DENSE * quads * vectors + shared
    if rows is not None:
        sixteens = rows.strips * rows.line / 16 * rows.out[0]
        # A side of the kernel without weights is not shifted.
        columns = live.reshape(-1, *extent).any((1, 2))
        sides = (columns[:, : rows.left], rows.left), (columns[:, rows.left + 1 :], rows.right)
        moves = 2 * len(outputs) + sum(int(side.any(1).sum()) * by for side, by in sides)
        shifts = ROWS_SHIFT[lanes] * moves * parts(layer, rows, lanes)
        loads = count_loads(layer, live.reshape(-1, *extent), 0)
        products = ROWS_SPARSE[lanes] * loads + ROWS_SHARED[lanes] * (nonzeros - loads)
        costs["rows"] = (
            sixteens * (products + shifts) + (STRIDED_PACK if strided else ROWS_PACK) * to_pack
        )
    if turned is not None:
        # Of a tile's inputs: two rows of outputs by eight, and what the kernel adds to them.
        tile = len(at.channels) * (extent[1] + 1) * (extent[2] + 7) * lanes * 4
        per_load = COLUMNS_SPARSE if tile < CACHE else COLUMNS_FAR
        if 4 * BLOCK * len(at.channels) * at.size[0] * at.size[1] > NEAR:
            per_load = COLUMNS_FARTHEST[lanes]
        loads = count_loads(layer, live.reshape(-1, *extent), 1)
        products = per_load * loads + COLUMNS_SHARED[lanes] * (nonzeros - loads)
        costs["columns"] = products * at.out[0] * at.out[1] / lanes + TURN * turned
    if planes is not None:
        vectors = -(-planes.length // lanes)
        put = PLANES_PUT + PLANES_ADDED * len(layer.added)
        shared = len(outputs) * (put * vectors + PLANES_TILE * -(-vectors // 12))
        shared += SPREAD * planes.spread
        per_load = PLANES_SPARSE if planes.near else PLANES_FAR
        # What is not in the kernel's middle lies across two cache lines.
        middle = _middle(layer, extent)
        beside = nonzeros - (
            0 if middle is None else int(live[:, middle :: extent[1] * extent[2]].sum())
        )
        split = PLANES_SPLIT[lanes] * beside
        cycles = (per_load * nonzeros + split) * vectors + shared
        costs["planes"] = (PLANES_SHORT if planes.short else 1) * cycles
        if layer.node["groups"] == 1:
            costs["quads"] = PLANES_DENSE * quads * vectors + shared
    for kernel in costs.keys() - liked if liked else ():
        costs[kernel] += SPREAD * len(weight) * at.out[0] * (at.out[1] + 8)
    return _choose("conv", costs, np.count_nonzero(weight) / max(1, weight.size), layer.place)


def _middle(layer: FusedLayer, extent: tuple[int, ...]) -> int | None:
    """The place in the kernel that reads its input where the result is."""
    sides = zip(extent[1:], layer.node.pair("padding"), layer.node.pair("dilation"), strict=True)
    (height, row), (width, column) = ((size, divmod(pad, by)) for size, pad, by in sides)
    if row[1] or column[1] or row[0] >= height or column[0] >= width:
        return None
    return row[0] * width + column[0]


def dense_places(layer: FusedLayer, places: int, lanes: int) -> float:
    """Seconds of a dense convolution place by place; outputs come in sixteens."""
    outputs, taps = -(-len(layer.weight) // 16) * 16, layer.weight[0].size
    cycles = PLACES_DENSE[lanes] * outputs / lanes * (taps + 3) * places
    return machine().seconds("conv places", cycles, layer.place)


def depthwise_places(layer: FusedLayer, places: int, lanes: int, usual: bool) -> float:
    """Seconds of a depthwise convolution place by place; `usual`: of the 3×3 kind."""
    vectors = -(-len(layer.weight) // lanes)
    per_product = PLACES_3X3 if usual else PLACES_DEPTHWISE
    cycles = per_product * vectors * (layer.weight[0].size + 2) * places
    return machine().seconds("conv depthwise", cycles, layer.place)


def turn(numbers: int) -> float:
    """Seconds to turn a value, so that the channels of a place are side by side, or back."""
    return PLACES_TURN * numbers / CLOCK


def _choose(family: str, costs: dict[str, float], density: float, place: int) -> Choice:
    """The kernel with the least seconds; `costs` are cycles, by the kernels of a family."""
    here = machine()
    wanted = [kernel for kernel in costs if here.wants(f"{family} {kernel}", place)]
    seconds = {
        kernel: here.seconds(f"{family} {kernel}", cycles, place)
        for kernel, cycles in costs.items()
        if kernel in wanted or not wanted
    }
    (first, best), *others = sorted(seconds.items(), key=lambda item: item[1])
    return Choice(first, best, others[0][1] if others else np.inf, density, family)
