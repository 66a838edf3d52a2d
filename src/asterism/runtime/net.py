"""A network ready to run: numpy in, numpy out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import asterism.kernels.library as library
from asterism.errors import FormatError, InputError
from asterism.graph.constants import settle
from asterism.graph.network import Graph, decode
from asterism.graph.stages import Array, FusedLayer, Shape
from asterism.graph.work import Work
from asterism.runtime.inputs import Inputs, contiguous
from asterism.runtime.layers.packing import BLOCK
from asterism.runtime.sized import FEW, Sized, without_kernel

if TYPE_CHECKING:
    from pathlib import Path

    from asterism.runtime.steps import KernelPlan

_F32 = np.dtype(np.float32)
SIZES = 8  # other sizes of the inputs that are kept compiled


class Net:
    """A network ready to run; safe to call from several threads.

    graph     its layers
    tensors   its weights by name, in the state dict's order, as the graph counts them
    threads   of its own, which share a batch
    max_work  multiply-adds that one example may take, as for `load`

    >>> from asterism.graph.network import Node
    >>> layers = (Node("linear", (0,), (0,)), Node("relu", (1,)))
    >>> net = Net(Graph((2,), layers), {"weight": np.float32([[1, 0], [0, -1]])})
    >>> net(np.float32([[3, 4]]))
    array([[3., 0.]], dtype=float32)
    """

    def __init__(
        self,
        graph: Graph,
        tensors: Mapping[str, npt.NDArray[Any]],
        *,
        threads: int = 1,
        max_work: int | None = None,
    ) -> None:
        if not isinstance(threads, int | np.integer) or threads < 1:
            raise InputError(f"threads must be 1 or more, got {threads!r}")
        self.threads = threads
        weights = [_float32(array) for array in tensors.values()]
        self.graph, self.weights = graph, _ = settle(graph, weights)
        self._library = library.load()
        self._work = Work.allowed(self.weights, max_work)
        own = [each.shape for each in graph.inputs]
        self._own = Sized(graph, self.weights, own, self._library, self._work)
        if self._library is None:
            _say_once()
        self.shapes = self._own.shapes
        self.output_shapes = [self.shapes[value] for value in graph.outputs]
        self.input_shape, self.output_shape = self.shapes[0], self.output_shapes[0]
        self._plain = graph.is_plain and self._own.compiled
        self._at = lru_cache(SIZES)(self._sized)
        self._part = lru_cache(SIZES)(self._streaming)
        self._inputs = Inputs(graph, self.weights)

    def __repr__(self) -> str:
        matrices = [weight for weight in self.weights if weight.ndim > 1]
        kept = sum(int(np.count_nonzero(weight)) for weight in matrices)
        total = sum(weight.size for weight in matrices)
        takes, gives = (
            ", ".join(f"(N, {', '.join(map(str, shape))})" for shape in shapes)
            for shapes in ([each.shape for each in self.graph.inputs], self.output_shapes)
        )
        where = f"{library.LEVELS[self.level]} kernels" if self._own.compiled else "numpy"
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        return f"Net({takes} → {gives}; {kept:,} of {total:,} weights; {where}, {threads})"

    @property
    def layers(self) -> list[FusedLayer]:
        """What really runs."""
        return self._own.layers

    @property
    def level(self) -> int:
        """The instruction set of the kernels."""
        return self._own.level

    @property
    def plans(self) -> tuple[KernelPlan, ...]:
        """For single images, and for blocks of them."""
        return self._own.program(many=True).plans

    def __call__(self, *xs: npt.NDArray[Any]) -> Any:
        """The answers to a batch: float32 of shape (N, *output_shape).

        xs  a batch for each input; a network with several outputs gives a tuple of arrays
        """
        if not self._plain or len(xs) != 1:
            sized, inputs = self._checked(xs)
            return sized.answers(inputs, self.threads)
        x = xs[0]
        if type(x) is not np.ndarray or x.dtype != _F32 or not x.flags.c_contiguous:
            x = contiguous(x, "the input")
        if x.shape[1:] != self.input_shape:
            self._inputs.refuse(x)
        return self._own.run(x, self.output_shape, self.threads)

    def stream(
        self, x: npt.NDArray[Any], state: Sequence[npt.NDArray[Any]] | None = None
    ) -> tuple[Any, tuple[Array, ...]]:
        """The answers to the next steps of a batch of sequences, and the state after them.

            y, state = net.stream(first)
            y, state = net.stream(second, state)

        For networks of forward LSTM and GRU layers, and of others that treat each step by itself
        or read the last one; steps may be as many as you like in each call.

        x      the next steps: float32 of shape (N, steps, features)
        state  what the call before returned; at first there is none, which is zeros
        """
        array = contiguous(x, "the input")
        if array.ndim != 3 or array.shape[1] == 0 or array.shape[2:] != self.input_shape[1:]:
            raise InputError(
                f"the input must have the shape (N, steps, {self.input_shape[-1]}),"
                f" with a step or more, not {array.shape}"
            )
        part = self._part(array.shape[1])
        shapes = [(len(array), *each.shape) for each in part.graph.inputs[1:]]
        states = [np.zeros(shape, _F32) for shape in shapes]
        if state is not None:
            if not isinstance(state, tuple | list):
                kind = type(state).__name__
                raise InputError(f"the state must be what the call before returned, not {kind}")
            states = [contiguous(each, "the state") for each in state]
        if [each.shape for each in states] != shapes:
            found = [each.shape for each in states]
            raise InputError(f"the state must be arrays of the shapes {shapes}, not {found}")
        made = part.answers([array, *states], self.threads)
        count = len(self.graph.outputs)
        return made[0] if count == 1 else made[:count], made[count:]

    def _streaming(self, steps: int) -> Sized:
        """The network for parts of this many steps."""
        from asterism.graph.streaming import streaming

        graph = streaming(self.graph, self.shapes, self.weights, steps)
        try:
            shapes = [each.shape for each in graph.inputs]
            return Sized(graph, self.weights, shapes, self._library, self._work)
        except FormatError as error:
            raise InputError(f"the network does not take {steps} steps: {error}") from error

    def _sized(self, shapes: tuple[Shape, ...]) -> Sized:
        try:
            return Sized(self.graph, self.weights, shapes, self._library, self._work)
        except FormatError as error:
            raise InputError(
                self._inputs.too_long(shapes) or f"the inputs do not fit: {error}"
            ) from error

    def _checked(self, xs: Sequence[npt.NDArray[Any]]) -> tuple[Sized, list[Array]]:
        """The inputs as floats, and the network for their sizes."""
        inputs = self._inputs.checked(xs)
        shapes = tuple(x.shape[1:] for x in inputs)
        own = shapes == tuple(each.shape for each in self.graph.inputs)
        return self._own if own else self._at(shapes), inputs

    def example(self, batch: int) -> tuple[npt.NDArray[Any], ...]:
        """Random inputs that the network takes, a batch for each."""
        return self._inputs.example(batch)

    def tune(self, batch: int = BLOCK) -> None:
        """Measures each layer by every kernel that can run it, here, and takes the fastest.

            net = asterism.runtime.load("net.asterism")
            net.tune()

        It takes some seconds, and no other call should run meanwhile. For inputs of the size
        that the network was saved with; other sizes, and kernels in numpy, stay as they are.
        Answers may change in their last digits.

        batch  how many examples the batches will have, where there are four or more of them
        """
        if batch < FEW:
            raise InputError(f"batch must be {FEW} or more, got {batch}: single ones are tuned too")
        if self._own.compiled:
            from asterism.runtime.choice.tuning import tuned

            inputs = self._inputs.checked(self.example(min(batch, BLOCK)))
            self._own = tuned(self._own, self._own.joined(inputs))

    def explain(self, *xs: npt.NDArray[Any] | None) -> str:
        """The plan, layer by layer, with the time predicted, and measured on `xs` if given."""
        if not self._own.compiled:
            missing = ", ".join(without_kernel(self.graph))
            reason = f"no kernel for {missing}" if missing else "no compiled kernels"
            return f"runs in numpy: {reason}, or nothing to compute"
        given = tuple(x for x in xs if x is not None)
        sized, inputs = self._checked(given) if given else (self._own, [])
        x = sized.joined(inputs) if inputs else None
        times = None
        many = x is not None and len(x) >= FEW
        if x is not None and many and len(x) % BLOCK < FEW:
            x = x[: len(x) // BLOCK * BLOCK]  # the rest would not run by this plan
        if x is not None and len(x):
            runs = [sized.profile(x, many) for _ in range(5)]
            times = [float(time) for time in np.median(runs, axis=0) / len(x)]
        from asterism.runtime.explain import explain

        return explain(sized.program(many).plans[many], sized.layers, self.level, many, times)


def load(
    path: str | Path, *, threads: int = 1, max_work: int | None = None, int16: bool = True
) -> Net:
    """The network in a file that was saved with its graph.

    path      the file
    threads   that share a batch
    max_work  multiply-adds that one example may take, each number of a value counted as 16; by
              default as many as the file's weights make plausible, so that a file of a few bytes
              cannot keep the machine busy
    int16     whether convolutions run in whole numbers of 16 bits where the file has scales for it
              and it is faster; in floats otherwise
    """
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
        graph = decode(contents.graph)
        graph = graph if int16 else Graph(graph.inputs, graph.nodes, graph.outputs)
        return Net(graph, tensors, threads=threads, max_work=max_work)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error


def _widened(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Types that numpy lacks are held as their bits."""
    if dtype == "bfloat16":
        return (array.astype("<u4") << 16).view("<f4")
    if dtype.startswith("float8"):
        raise InputError(f"the runtime has no {dtype}: save the network in another precision")
    return array


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
