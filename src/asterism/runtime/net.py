"""A network ready to run: numpy in, numpy out."""

from __future__ import annotations

import ctypes
import math
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import asterism.kernels.library as library
import asterism.runtime.reference as reference
from asterism.errors import FormatError, InputError
from asterism.graph.constants import settle
from asterism.graph.network import Graph, decode
from asterism.graph.operations import OPERATIONS
from asterism.graph.shapes import infer
from asterism.graph.stages import Array
from asterism.runtime.lowering import lower
from asterism.runtime.packing import BLOCK
from asterism.runtime.program import plan

if TYPE_CHECKING:
    from pathlib import Path

    from asterism.runtime.steps import Plan

FEW = 4  # images that run one by one, as in kernels/run.c
_F32 = np.dtype(np.float32)
_address_of, _first_byte = ctypes.addressof, ctypes.c_char.from_buffer


class Net:
    """A graph with its weights; `tensors` in the state dict's order, as the graph counts them.

    Safe to call from several threads; `threads` of its own share a batch of 64 or more.

    >>> from asterism.graph.network import Node
    >>> layers = (Node("linear", (0,), (0,)), Node("relu", (1,)))
    >>> net = Net(Graph((2,), layers), {"weight": np.float32([[1, 0], [0, -1]])})
    >>> net(np.float32([[3, 4]]))
    array([[3., 0.]], dtype=float32)
    """

    def __init__(
        self, graph: Graph, tensors: Mapping[str, npt.NDArray[Any]], *, threads: int = 1
    ) -> None:
        if threads < 1:
            raise InputError(f"threads must be 1 or more, got {threads}")
        self.threads = threads
        weights = [_float32(array) for array in tensors.values()]
        self.graph, self.weights = graph, _ = settle(graph, weights)
        self.shapes = infer(graph, self.weights)
        self.input_shape, self.output_shape = self.shapes[0], self.shapes[-1]
        self._few: _Compiled | None = None  # for single images: if any of it is compiled
        self._many: _Compiled | None = None  # for blocks of them as well: once a batch has come
        self._library = library.load()
        if self._library is None:
            _say_once()
        elif all(math.prod(shape) for shape in self.shapes) and not self._without_kernel():
            self._compile(self._library)

    def _without_kernel(self) -> list[str]:
        """Operations that only numpy runs, and the network with them."""
        names = dict.fromkeys(node.op for node in self.graph.nodes)
        return [name for name in names if not OPERATIONS[name].compiled]

    def _compile(self, lib: ctypes.CDLL) -> None:
        self.layers = lower(self.graph, self.shapes, self.weights)
        if not self.layers:
            return  # only reshaped: nothing to compute
        self.level = library.choose_level(lib)
        self._run = lib.asterism_run
        self._few = self._compiled(self._plan(many=False))

    def _plan(self, many: bool) -> Plan:
        lanes = library.LANES[self.level]
        return plan(self.layers, self.shapes, self.layers[-1].out, many, lanes)

    def _compiled(self, *plans: Plan) -> _Compiled:
        assert self._library is not None
        sizes = [math.prod(shape) for shape in (self.input_shape, self.output_shape)]
        return _Compiled(self._library, plans, sizes, self.level)

    def _program(self, many: bool) -> _Compiled:
        """Of two threads that each have the first batch each may make one: either serves."""
        assert self._few is not None
        if not many:
            return self._few
        made = self._many or self._compiled(*self._few.plans, self._plan(many=True))
        self._many = made
        return made

    @property
    def plans(self) -> tuple[Plan, ...]:
        """For single images, and for blocks of them."""
        return self._program(many=True).plans

    def __call__(self, x: npt.NDArray[Any]) -> Array:
        """The answers to a batch: float32 of shape (N, *output_shape)."""
        if type(x) is not np.ndarray or x.dtype != _F32 or not x.flags.c_contiguous:
            x = self._contiguous(x)
        if x.shape[1:] != self.input_shape:
            self._refuse(x)
        if self._few is None:
            return reference.run(self.graph, self.shapes, self.weights, x)
        n = len(x)
        out = np.empty((n, *self.output_shape), _F32)
        program = self._program(many=n >= FEW)
        status = self._run(program.pointer, _address(x), _address(out), n, self.threads)
        if status:
            return self._again(x, status)
        return out

    def _contiguous(self, x: npt.NDArray[Any]) -> Array:
        array = np.asarray(x)
        if array.dtype.kind != "f":
            raise InputError(f"the input must be of floating-point numbers, not {array.dtype}")
        if array.ndim == 0:
            raise InputError("the input must be a batch, not a single number")
        return np.ascontiguousarray(array, np.float32)

    def _refuse(self, x: Array) -> None:
        expected = ", ".join(map(str, ("N", *self.input_shape)))
        raise InputError(f"the input must have the shape ({expected}), not {x.shape}")

    def _again(self, x: Array, status: int) -> Array:
        if status != 1:
            raise MemoryError("no memory for the network's values")
        # Not finite: as in a dense network, infinity reaches past pruned weights.
        return reference.run(self.graph, self.shapes, self.weights, x)

    def explain(self, x: npt.NDArray[Any] | None = None) -> str:
        """The plan, layer by layer, with the time predicted, and measured on `x` if it is given."""
        if self._few is None:
            missing = ", ".join(self._without_kernel())
            reason = f"no kernel for {missing}" if missing else "no compiled kernels"
            return f"runs in numpy: {reason}, or nothing to compute"
        times = None
        if x is not None:
            x = self._contiguous(x)
            if x.shape[1:] != self.input_shape:
                self._refuse(x)
        many = x is not None and len(x) >= FEW
        if x is not None and many and len(x) % BLOCK < FEW:
            x = x[: len(x) // BLOCK * BLOCK]  # the rest would not run by this plan
        if x is not None and len(x):
            runs = [self._profile(x, many) for _ in range(5)]
            times = [float(time) for time in np.median(runs, axis=0) / len(x)]
        from asterism.runtime.explain import explain

        return explain(self._program(many).plans[many], self.layers, self.level, many, times)

    def _profile(self, x: Array, many: bool) -> list[float]:
        """Seconds of each step of a plan, over all of `x`, which has to be what runs by it."""
        assert self._library is not None
        program = self._program(many)
        times = np.zeros(len(program.plans[many].steps))
        pointer = times.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
        out = np.empty((len(x), *self.output_shape), _F32)
        self._library.asterism_profile(
            program.pointer, x.ctypes.data, out.ctypes.data, len(x), pointer
        )
        return [float(time) for time in times]


class _Compiled:
    """A program in C: of a plan for single images, and of one for blocks if there are two."""

    def __init__(
        self, lib: ctypes.CDLL, plans: tuple[Plan, ...], sizes: list[int], level: int
    ) -> None:
        self.plans, self._free = plans, lib.asterism_free
        tables = [part for plan in plans for part in (plan.table, len(plan.steps))]
        none = [None, 0] * (2 - len(plans))
        scratch = max(plan.scratch for plan in plans)
        self.pointer = lib.asterism_new(*tables, *none, scratch, *sizes, level)
        if not self.pointer:
            raise MemoryError("no memory for the network")

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._free(self.pointer)


def load(path: str | Path, *, threads: int = 1) -> Net:
    """The network in a file that was saved with its graph."""
    from asterism.file import read

    contents = read(path)
    if contents.graph is None:
        raise InputError(
            f"{path} holds weights without a graph: save it with example_inputs to run it"
        )
    tensors = {
        name: _widened(array, contents.dtypes[name]) for name, array in contents.tensors.items()
    }
    try:
        return Net(decode(contents.graph), tensors, threads=threads)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error


def _widened(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Types that numpy lacks are held as their bits."""
    if dtype == "bfloat16":
        return (array.astype("<u4") << 16).view("<f4")
    if dtype.startswith("float8"):
        raise InputError(f"the runtime has no {dtype}: save the network in another precision")
    return array


def _address(x: Array) -> int:
    """Where an array begins; by its buffer, which is the faster way, but has to be writable."""
    try:
        return _address_of(_first_byte(x.data))
    except (TypeError, ValueError):
        return int(x.__array_interface__["data"][0])


def _float32(array: npt.NDArray[Any]) -> Array:
    """A copy: the owner may change his before the first batch, and that is planned only then."""
    return np.array(array, np.float32, order="C")


_said = False


def _say_once() -> None:
    global _said
    if not _said:
        _said = True
        asked = os.environ.get("ASTERISM_KERNELS") == "none"
        reason = "ASTERISM_KERNELS=none" if asked else "no compiled kernels are installed"
        warnings.warn(
            f"asterism: {reason}: networks run in numpy, slowly",
            RuntimeWarning,
            stacklevel=4,
        )
