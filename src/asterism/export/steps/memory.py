"""Where the values of a network lie in its workspace: those that never live together overlap."""

from __future__ import annotations

from collections.abc import Sequence

from asterism.export.steps.step import WORK, Buffer, Step


def place(
    steps: Sequence[Step], given: Sequence[Buffer] = (), placed: Sequence[Buffer] = ()
) -> int:
    """Gives every buffer of the workspace its offset; how many floats that takes.

    The largest buffers are placed first, each at the lowest offset where nothing lies that is
    needed at the same time.

    given   those that hold something before the first step
    placed  those that have an offset already, and may overlap each other
    """
    shared = _shared(steps)
    lives = _lives(steps, shared)
    lives |= {buffer: (0, lives.get(buffer, (0, 0))[1]) for buffer in given}
    done = list(placed)
    others = [buffer for buffer in lives if buffer not in placed]
    for buffer in sorted(others, key=lambda each: (-each.size, lives[each])):
        near = [each for each in done if _meet(lives[buffer], lives[each])]
        buffer.offset = _lowest(buffer.size, sorted(near, key=lambda each: each.offset))
        done.append(buffer)
    for buffer, home in shared.items():
        buffer.offset = _home(home, shared).offset
    return max((buffer.offset + buffer.size for buffer in done), default=0)


def _lowest(size: int, taken: Sequence[Buffer]) -> int:
    offset = 0
    for other in taken:
        if offset + size <= other.offset:
            break
        offset = max(offset, other.offset + other.size)
    return offset


def _shared(steps: Sequence[Step]) -> dict[Buffer, Buffer]:
    """Results that may lie where a source is which nothing reads later."""
    last = {buffer: number for number, step in enumerate(steps) for buffer in step.buffers}
    found: dict[Buffer, Buffer] = {}
    for number, step in enumerate(steps):
        source = step.sources[0] if step.in_place else None
        if source is None or source is step.out or step.out in found:
            continue
        fits = source.space == step.out.space == WORK and source.size == step.out.size
        if fits and last[source] == number:
            found[step.out] = source
    return found


def _home(buffer: Buffer, shared: dict[Buffer, Buffer]) -> Buffer:
    while buffer in shared:
        buffer = shared[buffer]
    return buffer


def _lives(steps: Sequence[Step], shared: dict[Buffer, Buffer]) -> dict[Buffer, tuple[int, int]]:
    """Of each buffer that has memory of its own: the first and the last step that needs it."""
    lives: dict[Buffer, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for buffer in step.buffers:
            if buffer.space == WORK:
                home = _home(buffer, shared)
                lives[home] = lives.get(home, (number, number))[0], number
    return lives


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
