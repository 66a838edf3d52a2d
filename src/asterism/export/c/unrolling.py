"""Layers as straight code, for speed: every weight is a number in an expression of its own.

Reads no table at run time, and takes more flash: about 8 bytes a weight on a Cortex-M.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from asterism.export.c.texts import number
from asterism.export.steps.step import Numbers, Places, Step

MOST = 20_000  # weights of a layer: of more the code would be larger than any cache


def unrolled(step: Step, name: str) -> str | None:
    """A function for one layer alone; None where its table is the better form."""
    maker = {"linear": _linear, "conv": _conv}.get(step.function)
    if maker is None:
        return None
    places, weights, bias = step.tables
    assert isinstance(places, Places)
    assert isinstance(weights, Numbers)
    assert isinstance(bias, Numbers)
    if places.numbers is None or weights.array is None or weights.array.size > MOST:
        return None
    return maker(step, name, list(_rows(places, weights, bias)))


Row = tuple[float, list[tuple[int, float]]]


def _rows(places: Places, weights: Numbers, bias: Numbers) -> Iterator[Row]:
    """Of each output its bias, and the place and value of each weight."""
    numbers, at, k = places.numbers or (), 0, 0
    values = [] if weights.array is None else weights.array.tolist()
    row = 0
    while at < len(numbers):
        count = numbers[at]
        reads = np.cumsum(np.array(numbers[at + 1 : at + 1 + count], np.int64) + 1) - 1
        found = list(zip(reads.tolist(), values[k : k + count], strict=True))
        yield (0.0 if bias.array is None else float(bias.array[row]), found)
        at, k, row = at + 1 + count, k + count, row + 1


def _linear(step: Step, name: str, rows: list[Row]) -> str:
    count, inputs, _, relu = step.sizes
    lines = []
    for output, (bias, found) in enumerate(rows):
        lines += [f"    s = {number(bias)};"]
        lines += [f"    s += {number(weight)} * x[{place}];" for place, weight in found]
        lines += [f"    y[{output}] = {'s < 0 ? 0 : s' if relu else 's'};"]
    body = "\n".join(lines)
    head = f"static void {name}(const float *x, float *y)\n{{\n    float s;\n"
    if count > 1:
        inner = body.replace("\n", "\n    ")
        body = f"    for (int32_t r = 0; r < {count}; r++, x += {inputs}, y += {len(rows)}) {{\n"
        body += f"    {inner}\n    }}"
    unused = "" if "x[" in body or count > 1 else "    (void)x;\n"
    return f"{head}{unused}{body}\n}}"


def _conv(step: Step, name: str, rows: list[Row]) -> str:
    _, down, right, height, width, pool, relu = step.sizes
    area = (height // pool) * (width // pool)
    blocks = [_channel(row, down, right, (height, width), pool, relu) for row in rows]
    head = f"static void {name}(const float *x, float *y, float *row)\n{{\n    (void)row;\n"
    unused = "" if any(found for _, found in rows) else "    (void)x;\n"
    joined = f"\n    y += {area};\n".join(blocks)
    return f"{head}{unused}{joined}\n}}"


def _channel(row: Row, down: int, right: int, size: tuple[int, int], pool: int, relu: int) -> str:
    """One channel; with pooling four numbers at once, so that each weight is loaded once."""
    bias, found = row
    height, width = size
    sums = [(f"s{i}{j}", i * down + j * right) for i in range(pool) for j in range(pool)]
    lines = [f"            float {', '.join(f'{name} = {number(bias)}' for name, _ in sums)};"]
    if found:
        lines += [f"            const float *p = x + i * {pool * down} + j * {pool * right};"]
    for place, weight in found:
        lines += [
            f"            {name} += {number(weight)} * p[{place + more}];" for name, more in sums
        ]
    lines += [f"            if ({name} > s00) s00 = {name};" for name, _ in sums[1:]]
    lines += [f"            y[i * {width // pool} + j] = {'s00 < 0 ? 0 : s00' if relu else 's00'};"]
    return (
        f"    for (int32_t i = 0; i < {height // pool}; i++)\n"
        f"        for (int32_t j = 0; j < {width // pool}; j++) {{\n"
        + "\n".join(lines)
        + "\n        }"
    )
