"""A network for inputs of certain sizes: shapes, plans, and the compiled program.

Whoever calls it has checked the inputs: batches of float32, each of the shape that was said.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np

import asterism.kernels.library as library
import asterism.runtime.reference as reference
from asterism.graph.network import Graph
from asterism.graph.operations import OPERATIONS
from asterism.graph.shapes import infer
from asterism.graph.stages import Array, FusedLayer, Shape
from asterism.graph.work import Work
from asterism.runtime.building import Ends, Planning
from asterism.runtime.choice.cost import MACHINE, Machine, planning_for
from asterism.runtime.lowering import lower, memory
from asterism.runtime.program import plan
from asterism.runtime.steps import KernelPlan

FEW = 4  # images that run one by one, as in kernels/run.c
_F32 = np.dtype(np.float32)
_address_of, _first_byte = ctypes.addressof, ctypes.c_char.from_buffer


def without_kernel(graph: Graph) -> list[str]:
    """Operations that only numpy runs, and the network with them."""
    names = dict.fromkeys(node.op for node in graph.nodes)
    return [name for name in names if not OPERATIONS[name].compiled]


class Sized:
    """A graph with its weights, for inputs of the given shapes.

    All inputs of an image lie side by side in one row, and so do its results.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Sequence[Array],
        given: Sequence[Shape],
        lib: ctypes.CDLL | None,
        work: Work,
    ) -> None:
        self.graph, self.weights = graph, weights
        self.shapes = infer(graph, weights, given)
        work.check(graph, self.shapes)
        self.layers: list[FusedLayer] = []
        self._few: _Compiled | None = None  # for single images: if any of it is compiled
        self._many: _Compiled | None = None  # for blocks of them as well: once a batch has come
        self._machines: tuple[Machine | None, ...] = (None, None)  # that each is planned for
        if lib is not None and all(map(math.prod, self.shapes)) and not without_kernel(graph):
            self._compile(lib)

    def _compile(self, lib: ctypes.CDLL) -> None:
        self.layers = lower(self.graph, self.shapes, self.weights)
        if not self.layers:
            return  # only reshaped: nothing to compute
        roots = memory(self.graph)
        results = tuple(roots[value] for value in self.graph.outputs)
        self.ends = Ends(len(self.graph.inputs), results)
        self.level = library.choose_level(lib)
        self._library, self._run = lib, lib.asterism_run
        self._few = self._compiled(self._plan(many=False))

    @property
    def compiled(self) -> bool:
        """Whether kernels run it, and not numpy."""
        return self._few is not None

    def planned_for(self, few: Machine | None, many: Machine | None) -> Sized:
        """The same, with plans for other machines, of single images and of blocks."""
        other = copy(self)
        other._machines, other._many = (few, many), None
        other._few = other._compiled(other._plan(many=False))
        return other

    def machine(self, many: bool) -> Machine | None:
        """What a plan is for, if not for the machine as it was calibrated."""
        return self._machines[many]

    def _plan(self, many: bool) -> KernelPlan:
        with planning_for(self._machines[many] or MACHINE.get()):
            planning = Planning(self.layers, self.shapes, self.ends, many, self.level)
            # A batch runs by both plans, and neither may write over zeros that the other keeps.
            start = self._few.plans[0].scratch if many and self._few else 0
            return plan(self.graph, planning, start)

    def _compiled(self, *plans: KernelPlan) -> _Compiled:
        return _Compiled(self._library, plans, self.ends.sizes(self.shapes), self.level)

    def program(self, many: bool) -> _Compiled:
        """The program for single images, or for blocks of them, made at the first such batch."""
        assert self._few is not None
        if not many:
            return self._few
        # Two threads that each have the first batch may each make one: either serves.
        made = self._many or self._compiled(*self._few.plans, self._plan(many=True))
        self._many = made
        return made

    def run(self, x: Array, shape: Shape, threads: int) -> Array:
        """The results of the compiled program, as rows of `shape`."""
        n = len(x)
        out = np.empty((n, *shape), _F32)
        program = self.program(many=n >= FEW)
        status = self._run(program.pointer, _address(x), _address(out), n, threads)
        if status == 0:
            return out
        if status != 1:
            raise MemoryError("no memory for the network's values")
        # Not finite: as in a dense network, infinity reaches past pruned weights.
        found = reference.run(self.graph, self.shapes, self.weights, *self._apart(x))
        found = found if isinstance(found, tuple) else (found,)
        return np.concatenate([_rows(each) for each in found], 1).reshape(out.shape)

    def answers(self, inputs: list[Array], threads: int) -> Any:
        """The results for a batch of each input: an array, or a tuple of several."""
        if self._few is None:
            return reference.run(self.graph, self.shapes, self.weights, *inputs)
        shapes = [self.shapes[value] for value in self.graph.outputs]
        x = self.joined(inputs)
        if len(shapes) == 1:
            return self.run(x, shapes[0], threads)
        made = self.run(x, (sum(map(math.prod, shapes)),), threads)
        return tuple(_pieces(made, shapes))

    def joined(self, inputs: Sequence[Array]) -> Array:
        """All inputs side by side, image by image."""
        if len(inputs) == 1:
            return inputs[0]
        return np.concatenate([_rows(x) for x in inputs], 1)

    def _apart(self, x: Array) -> list[Array]:
        count = len(self.graph.inputs)
        return [x] if count == 1 else _pieces(x, self.shapes[:count])

    def profile(self, x: Array, many: bool) -> list[float]:
        """Seconds of each step of a plan, over all of `x`, which has to be what runs by it."""
        program = self.program(many)
        times = np.zeros(len(program.plans[many].steps))
        pointer = times.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
        out = np.empty((len(x), self.ends.sizes(self.shapes)[1]), _F32)
        self._library.asterism_profile(
            program.pointer, x.ctypes.data, out.ctypes.data, len(x), pointer
        )
        return [float(time) for time in times]


class _Compiled:
    """A program in C: of a plan for single images, and of one for blocks if there are two."""

    def __init__(
        self, lib: ctypes.CDLL, plans: tuple[KernelPlan, ...], sizes: tuple[int, int], level: int
    ) -> None:
        self.plans, self._free = plans, lib.asterism_free
        tables = [part for plan in plans for part in (plan.table, len(plan.steps))]
        none = [None, 0] * (2 - len(plans))
        scratch = max(plan.scratch for plan in plans)
        least = plans[-1].least
        self.pointer = lib.asterism_new(*tables, *none, scratch, *sizes, least, level)
        if not self.pointer:
            raise MemoryError("no memory for the network")

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._free(self.pointer)


def _rows(x: Array) -> Array:
    return x.reshape(len(x), math.prod(x.shape[1:]))


def _pieces(rows: Array, shapes: Sequence[Shape]) -> list[Array]:
    """Rows cut into values of these shapes."""
    places = np.cumsum([0, *map(math.prod, shapes)])
    return [
        np.ascontiguousarray(rows[:, begin:end]).reshape(len(rows), *shape)
        for (begin, end), shape in zip(pairwise(places), shapes, strict=True)
    ]


def _address(x: Array) -> int:
    """Where an array begins; by its buffer, which is the faster way, but has to be writable."""
    try:
        return _address_of(_first_byte(x.data))
    except (TypeError, ValueError):
        return int(x.__array_interface__["data"][0])
