"""What an operation of the graph is: all that any stage has to know of it, in one class.

An operation is a subclass with its numbers and methods, in the file of its family; one instance of
it is in the family's OPERATIONS. Everything else finds it there: the bytes of a graph, `capture`,
`infer`, the numpy reference, `rebuild`, the compiled program, the page in the documentation, and
the tests that run over all operations by their examples.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from asterism.graph.stages import (
    Array,
    Call,
    FusedLayer,
    Given,
    Mask,
    NodeLike,
    Number,
    Program,
    Settings,
    Shape,
)

MAX_SIZE = 2**28  # numbers in one value or window: a gigabyte
MAX_IDS = 2**24  # whole numbers that are floats too


class UnsupportedError(Exception):
    """Torch's operation is known, but not in this form; its text, if it has one, names the form."""


class MisfitError(Exception):
    """Names the size or setting that is wrong."""


class Example:
    """A layer that is right, by which the tests over all operations try it.

    shape     of each of its inputs
    settings  those that have not their default
    weights   the shape of each weight, None where the layer has none
    inputs    how many it reads
    onnx      whether torch's exporter knows this form
    integer   whether its input is ids
    """

    def __init__(
        self,
        shape: Shape,
        settings: Settings = (),
        weights: tuple[Shape | None, ...] = (),
        inputs: int = 1,
        onnx: bool = True,
        integer: bool = False,
    ) -> None:
        self.shape, self.settings, self.weights, self.inputs = shape, settings, weights, inputs
        self.onnx, self.integer = onnx, integer


class Operation(ABC):
    """One operation: its place in the file format, its sizes, what it computes, and with what.

    name         in graphs, and in all that is printed
    code         its number in files, for ever; a new operation takes the next free one
    defaults     the settings and their defaults, in the order of the file; new ones go at the end
    weights      how many weights it may have; missing ones are None
    arity        how many inputs it has; −1 is any number
    free         whether its settings are a plain list, as of sizes, without names
    view         whether the result is its input's memory in another shape
    reads_ids    whether its input is whole numbers, as an input of the network may be
    captures     the names of torch's operations that become this one
    kernels      the compiled kernels that it runs by; without any a network runs in numpy
    onnx         in which forms torch's exporter knows it
    examples     layers by which it is tried
    """

    name: str
    code: int
    defaults: Mapping[str, Number] = MappingProxyType({})
    weights: int = 0
    arity: int = 1
    free: bool = False
    view: bool = False
    reads_ids: bool = False
    captures: tuple[str, ...]
    kernels: tuple[str, ...] = ()
    onnx: str = "yes"
    examples: tuple[Example, ...]

    @property
    def compiled(self) -> bool:
        """Whether the compiled program can run it."""
        return self.view or bool(self.kernels)

    @abstractmethod
    def capture(self, call: Call) -> int:
        """Adds the layers of one of torch's calls, by a name in `captures`; their result's number.

        UnsupportedError where the call is of a form that this operation is not.
        """

    @abstractmethod
    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        """The shape of the result; MisfitError where sizes, weights and settings do not fit.

        node    the layer
        inputs  the shapes of its inputs, for one example
        given   its weights
        """

    @abstractmethod
    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        """The result for a batch, in plain numpy.

        node    the layer
        inputs  its inputs, a batch each
        given   its weights
        shape   of the result, as the method of that name gave it
        """

    @abstractmethod
    def torch(
        self, torch: Any, node: NodeLike, given: Sequence[Any], shapes: Sequence[Shape]
    ) -> Any:
        """What torch computes it by: a module that holds the weights, or a function.

        torch   the library, as nothing here may import it
        node    the layer
        given   the weights, as parameters
        shapes  of the inputs; a function takes the inputs and then the weights
        """

    def work(
        self, node: NodeLike, inputs: Sequence[Shape], nonzeros: Sequence[int | None], shape: Shape
    ) -> int:
        """Multiply-adds for one example, or a bound of them: each weight once for each row.

        node      the layer
        inputs    the shapes of its inputs
        nonzeros  of each of its weights
        shape     of the result
        """
        return sum(count or 0 for count in nonzeros) * math.prod(shape[:-1])

    def emit(self, program: Program, layer: FusedLayer) -> None:
        """Adds the steps of a layer to the compiled program, by the names in `kernels`."""
        raise NotImplementedError(f"{self.name} has no compiled kernel")

    def absorb(
        self, layer: FusedLayer, node: NodeLike, given: Given, shape: Shape
    ) -> FusedLayer | None:
        """The layer with the node after it merged in; None where its kernels cannot do both.

        layer        what was merged so far
        node, given  what comes after, and its weights
        shape        of the layer's result so far
        """
        return None

    def read(self, layer: FusedLayer, needed: Mask, shape: Shape) -> Mask:
        """What a layer reads of an input: all of it, unless an operation knows better.

        layer   the layer
        needed  where its result is needed
        shape   of the input
        """
        return np.broadcast_to(np.True_, shape)


class Elementwise(Operation):
    """Each number of the result comes from the same place of the inputs."""

    def shape(self, node: NodeLike, inputs: Sequence[Shape], given: Given) -> Shape:
        need(all(shape == inputs[0] for shape in inputs), f"shapes {list(inputs)}")
        return inputs[0]

    def read(self, layer: FusedLayer, needed: Mask, shape: Shape) -> Mask:
        return needed


def need(condition: bool, what: str) -> None:
    if not condition:
        raise MisfitError(what)


def image(shape: Shape) -> tuple[int, int, int]:
    """Channels, height, width; a signal of one dimension has height 1."""
    need(len(shape) in (2, 3), "channels and one or two dimensions are needed")
    return (shape[0], 1, shape[1]) if len(shape) == 2 else (shape[0], shape[1], shape[2])


def like_image(shape: Shape, channels: int, height: int, width: int) -> Shape:
    """The shape of another image, with as many dimensions as `shape`."""
    return (channels, width) if len(shape) == 2 else (channels, height, width)


def settings(**defaults: Number) -> Mapping[str, Number]:
    """The names and defaults of an operation's settings; a float stays one in files."""
    return MappingProxyType(defaults)


def pairs(default: int, *names: str) -> dict[str, Number]:
    """A setting for the height and one for the width, of each name."""
    return {f"{name}_{axis}": default for name in names for axis in "hw"}


def captured_pair(name: str, value: Any, rank: int = 2) -> dict[str, int]:
    """Torch's one number, or one for each dimension; a network of one dimension has height 1."""
    sizes = [value] * rank if isinstance(value, int) else list(value)
    sizes = sizes * rank if len(sizes) == 1 and rank == 2 else sizes
    if not all(isinstance(size, int) for size in sizes):
        raise UnsupportedError
    axes = "hw"[2 - len(sizes) :]
    return {f"{name}_{axis}": size for axis, size in zip(axes, sizes, strict=True)}
