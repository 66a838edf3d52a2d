"""What each stage of a network's life hands to an operation, and takes back from it.

A node is what a graph holds; a call is what `capture` found in a torch model; a fused layer is what
the runtime runs, and a program what its steps for the compiled kernels are added to. Owns these
borders, and imports none of the stages: operations know no torch, and nothing of the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Number = int | float
Array = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Shape = tuple[int, ...]  # of one example, without the batch
Given = Sequence[Array | None]  # the weights of a node, None where it has none
Settings = Mapping[str, Number] | tuple[int, ...]
Buffer = Any  # memory of the runtime's: an operation only hands it on


class NodeLike(Protocol):
    """A layer of a graph: what it reads, and its settings with their defaults."""

    op: str
    inputs: tuple[int, ...]
    weights: tuple[int | None, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The settings of an operation whose settings are a plain list."""

    def __getitem__(self, name: str) -> int: ...

    def number(self, name: str) -> Number: ...

    def pair(self, name: str) -> tuple[int, int]:
        """The settings `name_h` and `name_w`."""


class Call(Protocol):
    """One call in a torch program, and where the layers go that it becomes.

    name    torch's
    args    its arguments by torch's names, defaults included
    shape   of the result, or of the first of several; its batch is a symbol, and not a number
    item    which of several results is asked for, as the parts of a split are
    before  how many indices of the dimension that is split the parts before that one have
    """

    name: str
    args: Mapping[str, Any]
    shape: tuple[Any, ...]
    item: int | None
    before: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape without the batch, −1 for a size that is not known in advance.

        UnsupportedError where that is more than one.
        """

    def shape_of(self, argument: Any) -> tuple[Any, ...]:
        """The shape of an argument; UnsupportedError where that is not a tensor."""

    def layer(self, op: str, settings: Settings = (), *weights: Any) -> int:
        """Adds `op` of the first argument; the number of its result.

        weights  those of torch's arguments that are weights, or None
        """

    def add(
        self,
        op: str,
        inputs: tuple[int, ...],
        settings: Settings = (),
        *weights: Any,
        sizes: tuple[int, ...] | None = None,
    ) -> int:
        """Adds `op` of values that have numbers already; the number of its result.

        op        the name of the operation
        inputs    the numbers of the values
        settings  by name, or a plain list
        weights   those of torch's arguments that are weights, or their numbers, or None
        sizes     of the result, where that is not the call's
        """

    def mask(self, argument: Any, hides: bool = False) -> tuple[dict[str, int], tuple[Any, ...]]:
        """The settings and weights of attention for a mask that is the same for all inputs.

        hides  whether true is what is hidden, and not what is seen
        """

    def width(self, value: int) -> int | None:
        """The size of a value's last dimension, where it is known."""

    def add_layer(
        self, op: str, inputs: tuple[int, ...], weights: Sequence[Any], settings: Settings = ()
    ) -> int:
        """Adds `op` of values that have numbers already, with weights of torch's.

        op        the name of the operation
        inputs    the numbers of the values
        weights   torch's own, or None
        settings  by name, or a plain list
        """

    def wants(self, item: int) -> bool:
        """Whether anything reads this one of several results."""

    def give(self, item: int, value: int) -> None:
        """What one of several results is; for those that have the batch second."""

    def state(self, argument: Any) -> int:
        """The number of an argument that has the batch second; the value has it first."""

    def is_zeros(self, argument: Any) -> bool:
        """Whether it is a tensor that torch has just made, all of zeros."""

    def constant(self, op: str, settings: Settings, *weights: Any) -> int:
        """Adds `op` of weights alone."""

    def value(self, argument: Any) -> int:
        """The number of an argument; UnsupportedError where that is not a value of the network.

        A weight becomes one, of the weight's own shape.
        """

    def batched(self, argument: Any) -> bool:
        """Whether its first dimension is the batch: not of weights, and of what is made of them."""

    def maker(self, value: int) -> NodeLike | None:
        """The layer that makes a value; None for the network's input."""


class FusedLayer(NamedTuple):
    """A node with all that was merged into it, as the runtime runs it.

    place    of the first node
    inputs   the values whose memory it reads; `node.inputs` tell in which shape
    out      the value that it makes
    added    the value that is added to its result, before any ReLU: none or one
    needed   marks the results that anything reads
    """

    place: int
    node: NodeLike
    inputs: tuple[int, ...]
    out: int
    weights: Given
    relu: bool = False
    pool: bool = False
    added: tuple[int, ...] = ()
    needed: Mask | None = None

    @property
    def weight(self) -> Array:
        """The weight of a convolution or a fully connected layer."""
        assert self.weights[0] is not None
        return self.weights[0]

    @property
    def bias(self) -> Array:
        """The bias of such a layer, zeros where it has none."""
        given = self.weights[1]
        return np.zeros(len(self.weight), np.float32) if given is None else given

    @property
    def fused(self) -> str:
        """The activation that its own step applies."""
        return "relu" if self.relu else "none"

    @property
    def name(self) -> str:
        merged = " + add" * len(self.added) + " + relu" * self.relu + " + max_pool" * self.pool
        return self.node.op + merged


class Program(Protocol):
    """Steps for the compiled kernels, to which each layer adds its own: runtime/program.py.

    shapes  of all values of the graph, by their numbers
    """

    shapes: Sequence[Shape]

    def add(self, kernel: str, layer: FusedLayer, source: Buffer, out: Buffer, **rest: Any) -> None:
        """One step: a kernel over an input and a result.

        kernel  its name in `KERNELS`
        layer   whose step it is
        source  the input
        out     the result
        rest    other (a second input), sizes, data (arrays), whole (takes a whole block of
                images), activation, a and b: what the kernel reads of its step
        """

    def size(self, value: int) -> int:
        """How many numbers a value has."""

    def seen(self, layer: FusedLayer) -> Shape:
        """The shape in which a layer reads its first input."""

    def rows(self, value: int, layer: FusedLayer) -> Buffer:
        """A value, image by image."""

    def channels(self, value: int, layer: FusedLayer) -> tuple[Buffer, tuple[int, int, int]]:
        """An image by image value, with zeros between rows and channels, or none of them.

        Numbers from a row to the next, from a channel to the next, and before the first channel.
        """

    def by_place(self, value: int, layer: FusedLayer) -> Buffer | None:
        """An image whose channels lie side by side at each place, if it lies in no other way."""

    def out(self, layer: FusedLayer) -> Buffer:
        """Memory for a layer's result, image by image."""

    def numbers(self, numbers: Array) -> Buffer:
        """Numbers that are the same for every image."""

    def scratch(self, size: int) -> Buffer:
        """Memory that a step needs while it runs."""

    def constant(self, layer: FusedLayer, numbers: Array) -> None:
        """A layer whose result is the same for every image."""

    def in_and_out(self, layer: FusedLayer) -> tuple[Buffer, Buffer]:
        """Input and result of a layer that treats each number alike, in whatever order they lie."""

    def move(self, layer: FusedLayer, places: npt.NDArray[np.int32], filling: float) -> None:
        """A layer whose result has numbers of its input, at these places; −1 is the filling."""

    def conv(self, layer: FusedLayer) -> None:
        """All steps of a convolution, by the kernel that should be the fastest."""

    def linear(self, layer: FusedLayer) -> None:
        """All steps of a fully connected layer, by the kernel that should be the fastest."""

    def recurrent(self, layer: FusedLayer) -> None:
        """All steps of a recurrent layer."""
