"""A call of a small function, the memory it reads and writes, and the tables it is given.

The arguments of a function come in one order, in C and in JavaScript: sources, result, scratch,
sizes, numbers, tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from asterism.graph.stages import Array

INPUT, OUTPUT, WORK = "in", "out", "work"


@dataclass(eq=False)
class Buffer:
    """Memory of one value, counted in floats.

    size     how many
    space    the caller's input or output, or the workspace
    offset   where it begins in its space; in the workspace `memory` finds it
    columns  never here: what a plan of the runtime for blocks of images would have
    wide     in a workspace of 8 bits: whether it is for numbers of 32
    by_rows  of an image: whether its first rows of all channels come first, and then its second
    """

    size: int
    space: str = WORK
    offset: int = 0
    columns: bool = False
    wide: bool = False
    by_rows: bool = False


class Numbers(NamedTuple):
    """Floats, as they are or as codes for few values; None where a layer has none."""

    array: Array | None


class Places(NamedTuple):
    """Whole numbers from 0 on, of seven bits a byte; None for a matrix without zeros."""

    numbers: Sequence[int] | None


class Integers(NamedTuple):
    """Whole numbers of 32 bits."""

    numbers: Sequence[int]


Table = Numbers | Places | Integers


@dataclass(frozen=True)
class Step:
    """One call.

    function  its name, in functions/*.c and functions.js
    sources   what it reads; None where it may read one more
    in_place  whether its result may lie where its first source is
    work      multiply-adds
    """

    function: str
    sources: tuple[Buffer | None, ...]
    out: Buffer
    scratch: Buffer | None = None
    sizes: tuple[int, ...] = ()
    numbers: tuple[float, ...] = ()
    tables: tuple[Table, ...] = ()
    in_place: bool = False
    work: int = 0

    @property
    def buffers(self) -> list[Buffer]:
        found = [*self.sources, self.out, self.scratch]
        return [buffer for buffer in found if buffer is not None]


@dataclass
class Portable:
    """A network for one example.

    steps      the calls in their order
    inputs     shapes of the inputs, which lie side by side
    outputs    shapes of the results, which do too
    workspace  floats, or numbers of 8 bits
    integer    which of the inputs are whole numbers
    weights    how many weights are not zero, without biases
    scales     of input and output, in a network of whole numbers of 8 bits
    input_at   where the input begins in the workspace, if it lies there
    """

    steps: list[Step]
    inputs: list[tuple[int, ...]]
    outputs: list[tuple[int, ...]]
    workspace: int = 0
    integer: list[bool] = field(default_factory=list)
    weights: int = 0
    scales: tuple[float, float] | None = None
    input_at: int | None = None

    @property
    def bytes(self) -> int:
        """The size of the workspace in bytes, at least 4."""
        return max(4, self.workspace * (4 if self.scales is None else 1))

    @property
    def work(self) -> int:
        """Multiply-adds of weights that are not zero."""
        return sum(step.work for step in self.steps)


def integers(array: npt.NDArray[np.integer]) -> Integers:
    return Integers([int(number) for number in array.reshape(-1)])
