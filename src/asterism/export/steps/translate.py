"""What each operation asks the runtime's kernels for, as calls of small functions.

An operation adds its steps by `emit`, with the names of the kernels and their sizes and data. One
rule here for each kernel turns them into calls; an operation whose kernels all have one is exported
without anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from asterism.export.steps.step import Buffer, Numbers, Places, Step, integers
from asterism.graph.encoding import zigzag

Rule = Callable[..., list[Step]]
PARAMETERS = {"leaky_relu": 1, "clamp": 2, "elu": 2, "power": 1, "scale_shift": 2}
FAR = 1 << 40  # farther than any place
LIBRARY = ("tanh", "exp", "log", "abs", "erf")  # names that C has for functions of one number


def _activate(source: Buffer, out: Buffer, activation: str, a: float, b: float, **_: Any) -> Any:
    numbers = (a, b)[: PARAMETERS.get(activation, 0)]
    activation = activation + "_each" * (activation in LIBRARY)
    return [Step(activation, (source,), out, sizes=(out.size,), numbers=numbers, in_place=True)]


def _combine(
    source: Buffer,
    out: Buffer,
    other: Buffer,
    activation: str,
    sizes: Sequence[int],
    data: Sequence[Any],
    **_: Any,
) -> list[Step]:
    which, count = sizes[:2]
    whole = np.cumprod([1, *data[0][:0:-1, 0]])[::-1]
    rest = (which, int(activation == "relu"), count, out.size)
    # Where the first source is as large as the result, each number is read before it is written.
    alone = np.array_equal(data[0][:, 1], whole) and source is not other
    step = Step("combine", (source, other), out, sizes=rest, tables=(integers(data[0]),))
    return [Step(**{**vars(step), "in_place": bool(alone)})]


def _alike(which: int) -> Rule:
    """Two values of one shape."""

    def rule(source: Buffer, out: Buffer, other: Buffer, activation: str, **_: Any) -> list[Step]:
        axes = np.array([[out.size, 1, 1]])
        return _combine(source, out, other, activation, (which, 1, out.size), (axes,))

    return rule


def _scale(
    source: Buffer, out: Buffer, sizes: Sequence[int], data: Sequence[Any], **_: Any
) -> list[Step]:
    return [scaled(source, out, (1, *sizes), data)]


def scaled(source: Buffer, out: Buffer, sizes: Sequence[int], data: Sequence[Any]) -> Step:
    """Each of the middle one of three dimensions times a factor, plus a shift."""
    tables = tuple(Numbers(each) for each in data)
    return Step("scale", (source,), out, sizes=tuple(sizes), tables=tables, in_place=True)


def _normalise(
    source: Buffer, out: Buffer, sizes: Sequence[int], data: Sequence[Any], a: float, b: float,
    **_: Any,
) -> list[Step]:  # fmt: skip
    rest = (*sizes, int(b))
    steps = [Step("normalise", (source,), out, sizes=rest, numbers=(a,), in_place=True)]
    plain = not data or ((data[0] == 1).all() and not data[1].any())
    return steps if plain else [*steps, scaled(out, out, (*sizes, 1), data)]


def _plain(function: str, in_place: bool = False) -> Rule:
    """Sizes, and nothing else."""

    def rule(
        source: Buffer, out: Buffer, sizes: Sequence[int], other: Buffer | None = None, **_: Any
    ) -> list[Step]:
        sources = (source,) if other is None else (source, other)
        return [Step(function, sources, out, sizes=tuple(sizes), in_place=in_place)]

    return rule


def _pool(average: int) -> Rule:
    """Channels, their size and that of the result, dilations; how they lie is told after that."""

    def rule(
        source: Buffer, out: Buffer, sizes: Sequence[int], data: Sequence[Any], **_: Any
    ) -> list[Step]:
        factor = Numbers(data[1] if average else None)
        tables = (integers(data[0]), factor)
        return [Step("pool", (source,), out, sizes=(average, *sizes[:7]), tables=tables)]

    return rule


def _gather(
    source: Buffer, out: Buffer, sizes: Sequence[int], data: Sequence[Any], a: float, **_: Any
) -> list[Step]:
    run = sizes[1] if len(sizes) > 1 else 1
    firsts = data[0].reshape(-1, 1).astype(np.int64)
    places = np.where(firsts < 0, -1, firsts + np.arange(run)).reshape(-1)
    found = runs(places)
    count = len(found) // 3
    return [Step("gather", (source,), out, sizes=(count,), numbers=(a,), tables=(Places(found),))]


def runs(places: npt.NDArray[np.int64]) -> list[int]:
    """Places at equal distances as one: how many, the first plus 1, and the distance.

    A place below 0 stands for the filling; a distance d is 2d, or −2d − 1 below 0.

    >>> runs(np.array([4, 6, 8, -1, -1]))
    [3, 5, 4, 2, 0, 0]
    """
    far = np.where(places < 0, -FAR, places)
    steps = np.append(np.diff(far), 0)
    ends = np.append(np.flatnonzero(np.diff(steps)), len(places) - 1)
    found, at = list[int](), 0
    while at < len(places):
        # A step to or from the filling is none, and the last place of a run has another step.
        step = 0 if abs(steps[at]) > FAR // 2 else int(steps[at])
        same = step == steps[at] and at < len(places) - 1
        last = min(int(ends[np.searchsorted(ends, at)]) + 1, len(places) - 1) if same else at
        found += [last + 1 - at, max(-1, int(far[at])) + 1, zigzag(step)]
        at = last + 1
    return found


def _resize(
    source: Buffer, out: Buffer, sizes: Sequence[int], data: Sequence[Any], **_: Any
) -> list[Step]:
    tables = (integers(data[0]), integers(data[1]), Numbers(data[2]))
    return [Step("resize", (source,), out, sizes=tuple(sizes), tables=tables)]


def _embed(
    source: Buffer, out: Buffer, sizes: Sequence[int], data: Sequence[Any], **_: Any
) -> list[Step]:
    return [Step("embed", (source,), out, sizes=tuple(sizes), tables=(Numbers(data[0]),))]


def _matmul(
    source: Buffer, out: Buffer, other: Buffer, sizes: Sequence[int], **_: Any
) -> list[Step]:
    batch, rows, inner, columns = sizes[:4]
    work = batch * rows * inner * columns
    return [Step("matmul", (source, other), out, sizes=tuple(sizes[:4]), work=work)]


RULES: dict[str, Rule] = {
    "ACTIVATE": _activate,
    "ADD": _alike(0),
    "MULTIPLY": _alike(1),
    "COMBINE": _combine,
    "SCALE": _scale,
    "LAYER_NORM": _normalise,
    "MEAN": _plain("mean"),
    "SOFTMAX": _plain("softmax", in_place=True),
    "POOL_MAX": _pool(0),
    "POOL_AVERAGE": _pool(1),
    "GATHER": _gather,
    "RESIZE": _resize,
    "COPY_CHUNKS": _plain("copy"),
    "EMBED": _embed,
    "MATMUL": _matmul,
}
