"""Tables and numbers as C; each table once, whoever reads it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from asterism.export.steps.step import INPUT, OUTPUT, Buffer, Numbers, Places, Table
from asterism.export.steps.tables import coded, packed, varints
from asterism.graph.stages import Array

WIDTH = 98


def number(value: float) -> str:
    """A float as C reads it again.

    >>> number(0.1), number(3), number(-math.inf)
    ('0.1f', '3.0f', '-INFINITY')
    """
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = str(np.float32(value))
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def place(buffer: Buffer | None) -> str:
    """Where a value begins."""
    if buffer is None:
        return "0"
    name = {INPUT: "in", OUTPUT: "out"}.get(buffer.space, "work")
    text = f"{name} + {buffer.offset}" if buffer.offset else name
    return f"(int32_t *)({text})" if buffer.wide else text


class Tables:
    """All tables of a file, by their names, and their size in bytes.

    whole  whether weights are whole numbers of 8 bits
    """

    def __init__(self, prefix: str, whole: bool = False) -> None:
        self.prefix, self.size, self.whole = prefix, 0, whole
        self.texts: dict[str, str] = {}  # by what is in it: its name

    def argument(self, table: Table) -> str:
        """A table as a function is given it."""
        if isinstance(table, Numbers):
            return self._numbers(table)
        if isinstance(table, Places):
            if table.numbers is None:
                return "0"
            return self._named("uint8_t", map(str, varints(table.numbers)), 1)
        return self._named("int32_t", map(str, table.numbers), 4)

    def _numbers(self, table: Numbers) -> str:
        if table.array is None:
            return "(numbers){0, 0, 0}"
        if self.whole:
            return self._numbers_8(table.array)
        found = coded(table.array)
        values = self._named("float", map(number, found.values.tolist()), 4)
        codes = self._named("uint8_t", map(str, found.codes), 1) if found.bits else "0"
        return f"(numbers){{{codes}, {values}, {found.bits}}}"

    def _numbers_8(self, array: Array) -> str:
        """Whole numbers of 8 bits, as they are or as codes."""
        flat = array.reshape(-1).astype(np.int8)
        values, codes = np.unique(flat, return_inverse=True)
        bits = next((b for b in (1, 2, 4) if len(values) <= 1 << b), 0)
        if not bits or len(values) + len(flat) * bits // 8 >= len(flat):
            return f"(numbers_8){{0, {self._named('int8_t', map(str, flat), 1)}, 0}}"
        named = self._named("uint8_t", map(str, packed(codes.reshape(-1), bits)), 1)
        return f"(numbers_8){{{named}, {self._named('int8_t', map(str, values), 1)}, {bits}}}"

    def _named(self, kind: str, entries: Iterable[str], each: int) -> str:
        items = list(entries) or ["0"]
        text = f"static const {kind} {{}}[{len(items)}] TABLE = {{{{\n{lines(items)}\n}}}};\n"
        if text not in self.texts:
            self.texts[text] = f"{self.prefix}_t{len(self.texts)}"
            self.size += each * len(items)
        return self.texts[text]

    def __str__(self) -> str:
        return "\n".join(text.format(name) for text, name in self.texts.items())


def lines(items: Sequence[str]) -> str:
    """Items with commas, in lines that are not too long."""
    found, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > WIDTH:
            found.append(line)
            line = "   "
        line += f" {item},"
    return "\n".join([*found, line])
