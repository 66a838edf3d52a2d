"""The steps that the kernels run, and where in the scratch memory their values lie."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from asterism.graph.stages import Array, FusedLayer
from asterism.kernels.library import ACTIVATIONS, KERNELS, Operand, Step
from asterism.runtime.choice.cost import Choice
from asterism.runtime.layers.packing import BLOCK, Data

SCRATCH, INPUT, OUTPUT, CONSTANT = 0, 1, 2, 3
WORTH = 2.5e-5  # seconds: what it takes to wake a thread
MOSTLY_IMAGES = 0.1  # of the time: as much may go into steps for whole blocks
SLACK = 16  # floats after each value, which a vector may read but nobody uses


class Buffer:
    """Memory of one value: for an image, or, as columns, for a whole block of them.

    offset, stride  where it begins and how far its images are apart; in the scratch memory `place`
                    finds them
    kept            whether its memory is for no other value: zeros that nobody writes over stay
    """

    def __init__(
        self,
        size: int,
        space: int = SCRATCH,
        columns: bool = False,
        offset: int = 0,
        stride: int = 0,
        kept: bool = False,
    ) -> None:
        self.size, self.space, self.columns, self.kept = size, space, columns, kept
        self.offset, self.stride = offset, stride


class ConstantBuffer(Buffer):
    """Numbers that are the same for every image: its offset is their address, its stride 0."""

    def __init__(self, numbers: Array) -> None:
        super().__init__(numbers.size, CONSTANT)
        self.numbers = np.zeros(numbers.size + SLACK, np.float32)
        self.numbers[: numbers.size] = numbers.reshape(-1)
        self.offset = self.numbers.ctypes.data


class Planned(NamedTuple):
    """A step before its operands have their places."""

    kernel: str
    source: Buffer
    out: Buffer
    layer: FusedLayer
    other: Buffer | None = None
    sizes: Sequence[int] = ()
    data: Data = ()
    whole: bool = False
    activation: str = "none"
    a: float = 0.0
    b: float = 0.0

    @property
    def buffers(self) -> list[Buffer]:
        return [self.source, self.out, *([self.other] if self.other else [])]


class KernelPlan(NamedTuple):
    """The steps, as the kernels read them too, and where the scratch that they need ends."""

    steps: list[Planned]
    scratch: int
    choices: dict[int, Choice]
    table: ctypes.Array[Step]

    @property
    def least(self) -> int:
        """Images of a batch that are worth a thread's while: a block, or fewer if none needs it.

        A step for a whole block takes as long for fewer of its images.
        """
        blocks = {step.layer.place for step in self.steps if step.whole}
        seconds = sum(choice.seconds for choice in self.choices.values())
        whole = sum(self.choices[place].seconds for place in blocks & self.choices.keys())
        if seconds <= 0 or whole > MOSTLY_IMAGES * seconds:
            return BLOCK
        return int(min(BLOCK, 1 + WORTH // seconds))


def tabulate(steps: list[Planned]) -> ctypes.Array[Step]:
    table = (Step * len(steps))()
    for row, step in zip(table, steps, strict=True):
        row.operation = KERNELS.index(step.kernel)
        row.whole_block = step.whole
        row.activation = ACTIVATIONS.index(step.activation)
        row.a, row.b = step.a, step.b
        row.source, row.out = _operand(step.source), _operand(step.out)
        row.other = _operand(step.other or step.source)
        row.size[: len(step.sizes)] = [int(size) for size in step.sizes]
        row.data[: len(step.data)] = [array.ctypes.data for array in step.data]
    return table


def _operand(buffer: Buffer) -> Operand:
    return Operand(buffer.space, buffer.offset, buffer.stride)


def place(steps: list[Planned], start: int = 0) -> int:
    """Gives every buffer its offset and stride; where the scratch that all need together ends.

    A value that leaves its group of image-wise steps is kept for every image of a block.

    steps  of one program
    start  where its scratch begins: what is before belongs to another program
    """
    # Image-wise steps in a row are one group: an image goes through all of them before the next
    # one. A step for the whole block is a group of its own.
    group, groups = 0, []
    for i, step in enumerate(steps):
        if i and (step.whole or steps[i - 1].whole):
            group += 1
        groups.append(group)
    # The steps that use each buffer.
    spans: dict[int, tuple[Buffer, list[int]]] = {}
    for i, step in enumerate(steps):
        for buffer in step.buffers:
            spans.setdefault(id(buffer), (buffer, []))[1].append(i)
    # The buffers that are needed first get their places first.
    taken: list[tuple[int, int, int, int]] = []  # first step, last step, begin, end
    scratch = start
    for buffer, used in sorted(spans.values(), key=lambda span: span[1][0]):
        inside = len({groups[i] for i in used}) == 1 and not any(steps[i].whole for i in used)
        if buffer.space != SCRATCH:
            continue
        if not inside and not buffer.columns:
            buffer.stride = buffer.size
        first, last = min(used), max(used)
        if not inside:
            # Other images are still in the group: the value is in use as long as any of them is.
            first, last = groups.index(groups[first]), _last(groups, groups[last])
        if buffer.kept:
            first, last = 0, len(steps) - 1
        size = buffer.size if inside or buffer.columns else buffer.size * BLOCK
        size = -(-(size + SLACK) // 16) * 16
        # The first gap that is large enough between what is in use at the same time.
        begin = start
        for _, _, low, high in sorted(
            (span for span in taken if span[0] <= last and span[1] >= first), key=lambda s: s[2]
        ):
            if begin + size <= low:
                break
            begin = max(begin, high)
        buffer.offset = begin
        taken.append((first, last, begin, begin + size))
        scratch = max(scratch, begin + size)
    return scratch


def _last(groups: list[int], group: int) -> int:
    return len(groups) - 1 - groups[::-1].index(group)
