"""A sparse recurrent matrix, in steps that multiply eight or sixteen rows at once.

A step takes, of each row of a slice, at most one weight, and all of their inputs lie in a window of
as many places side by side: one load brings them, and the lowest bits of each weight say which is
its own. With vectors of sixteen they may lie in the window of the step before as well. Three bits
change a weight by at most one part in two million, five by one in half a million. Of each row a few
weights may be left that would make poor steps; their inputs are loaded one by one. Which steps
there are is found by kernels/layers/covering.c, and kernels/layers/recurrent.h runs them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import asterism.kernels.library as library
from asterism.graph.stages import Array
from asterism.runtime.layers.packing import Data, filled, starts_of
from asterism.runtime.layers.windows import Indices

LEFT = 2  # weights of a row whose inputs are picked one by one
AT_ONCE = 32  # weights in as many steps as the kernel takes at once
VECTOR = 8  # numbers of each of eight vectors that are turned at once
TURNED = VECTOR * VECTOR  # the state is a multiple of these
NEAR = 2**12  # numbers, in all orders, that stay in the first-level cache


class Orders(NamedTuple):
    """In which orders the state of a recurrent layer lies in memory, one after the other.

    number   how many
    vectors  where the vectors begin that are turned, eight by eight, for all orders but the first
    columns  of each place, which number of the state is there; their count where there is none
    """

    number: int
    vectors: Indices
    columns: Indices


def orders_of(units: int, side: int) -> Orders:
    """The state as it is, and in as many other orders as stay near with it.

    Eight vectors turned are eight others, each with one number of every one of them: these were not
    side by side before. More sets of numbers to choose from make fewer steps. Sixteen rows, with
    two windows to choose from, have enough of them in one order.
    """
    size = -(-units // TURNED) * TURNED
    count = max(1, min(8, NEAR // size, 1 + size // TURNED)) if side == VECTOR else 1
    random = np.random.default_rng(0)
    shuffled = [random.permutation(size // VECTOR) for _ in range(count - 1)]
    vectors = np.array(shuffled, np.int32).reshape(-1, VECTOR) * VECTOR
    turned = (vectors[:, None, :] + np.arange(VECTOR)[:, None]).reshape(-1)
    columns = np.minimum(np.concatenate([np.arange(size), turned]), units)
    return Orders(count, vectors, columns.astype(np.int32))


class Covered(NamedTuple):
    """A matrix in slices of rows, as they are multiplied.

    left, places   weights of each slice whose inputs are picked one by one: (slices, LEFT, side)
    steps, starts  the weights of each step, one of each row, and where its window begins
    counts         how many steps each slice takes
    """

    left: Array
    places: npt.NDArray[np.uint16]
    steps: Array
    starts: npt.NDArray[np.uint16]
    counts: Indices


def recurrent_sparse(weight: Array, bias: Array, side: int) -> Data:
    """Weights, left and in steps; vectors of the orders, places, starts; slices; biases.

    A slice is its first row, and how many steps it takes: a multiple of those that the kernel takes
    at once.
    """
    orders = orders_of(weight.shape[1], side)
    found = cover(weight, orders, side)
    # Slices of as many steps follow each other: then the processor foresees where they end.
    steps = AT_ONCE // side
    counts = -(-found.counts // steps) * steps
    order = np.argsort(counts, kind="stable")
    begin = starts_of(counts[order])
    first = np.empty_like(counts)
    first[order] = begin[:-1]
    place = np.arange(len(found.steps)) + np.repeat(
        first - starts_of(found.counts)[:-1], found.counts
    )
    left = found.left[order].reshape(-1, side)
    weights = aligned_zeros(len(left) + begin[-1], side)
    weights[: len(left)], weights[len(left) + place] = left, found.steps
    starts = np.zeros(begin[-1], np.uint16)
    starts[place] = found.starts
    table = (orders.vectors.ravel(), found.places[order].ravel(), starts)
    slices = np.stack([order * side, counts[order]], 1).astype(np.int32)
    return weights, np.concatenate(table).astype(np.uint16), slices, filled(bias, side)


def cover(weight: Array, orders: Orders, side: int) -> Covered:
    """The steps that kernels/layers/covering.c finds for each slice of `side` rows."""
    units, slices = weight.shape[1], -(-len(weight) // side)
    whole = np.zeros((slices * side, units), np.float32)
    whole[: len(weight)] = weight
    most = np.count_nonzero(weight)
    found = Covered(
        np.empty((slices, LEFT, side), np.float32),
        np.empty((slices, LEFT, side), np.uint16),
        np.empty((most, side), np.float32),
        np.empty(most, np.uint16),
        np.empty(slices, np.int32),
    )
    kernels = library.load()
    assert kernels is not None
    done = kernels.asterism_cover(
        *(whole.ctypes.data, slices, units, orders.columns.ctypes.data, len(orders.columns)),
        *(orders.number, side, *(each.ctypes.data for each in found)),
    )
    if not done:
        raise MemoryError("no memory to lay out a recurrent layer")
    steps = int(found.counts.sum())
    return found._replace(steps=found.steps[:steps], starts=found.starts[:steps])


def aligned_zeros(count: int, width: int) -> Array:
    """Zeros that begin with a cache line: then no vector of them is in two."""
    line = 16
    whole = np.zeros(count * width + line, np.float32)
    first = -(whole.ctypes.data // 4) % line
    return whole[first : first + count * width].reshape(count, width)
