"""Writes operations.h, table.h and primer.h: what C has to know as Python knows it.

python src/libasterism/generate.py
"""

from __future__ import annotations

import math
from pathlib import Path

from asterism.file.small.symbols import PRIMER
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.operation import Operation

BEGIN = "/* Written by generate.py: do not edit. */\n\n"


def headers() -> dict[str, str]:
    """The text of each file."""
    return {"operations.h": _names(), "table.h": _table(), "primer.h": _primer()}


FOUND = sorted(OPERATIONS.values(), key=lambda operation: operation.code)


def _names() -> str:
    """An enumeration of operations, and one of the settings of each."""
    parts = [_enum([f"op_{each.name}" for each in FOUND])]
    parts += [_enum([f"{each.name}_{name}" for name in each.defaults]) for each in FOUND]
    return BEGIN + "\n".join(part for part in parts if part) + "\n"


def _table() -> str:
    """How files hold each operation, in the order of the enumeration."""
    rows = "\n".join(map(_row, FOUND))
    return f"{BEGIN}static const Operation OPERATIONS[] = {{\n{rows}\n}};\n"


def _enum(names: list[str]) -> str:
    lines = "\n".join(f"    {name.upper()}," for name in names)
    return f"enum {{\n{lines}\n}};" if names else ""


def _row(operation: Operation) -> str:
    defaults = list(operation.defaults.values())
    floats = sum(1 << place for place, each in enumerate(defaults) if isinstance(each, float))
    numbers = ", ".join(map(_number, defaults)) or "0"
    flags = f"{str(operation.free).lower()}, {str(operation.view).lower()}"
    sizes = f"{operation.code}, {operation.arity}, {operation.weights}, {len(defaults)}"
    return f'    {{"{operation.name}", {sizes}, {flags}, {{{numbers}}}, {floats}}},'


def _number(number: float) -> str:
    return ("-" if number < 0 else "") + "INFINITY" if math.isinf(number) else repr(number)


def _primer() -> str:
    """What both sides of the small codec have read before the first name."""
    names = PRIMER.decode().split("\0")[:-1]
    lines = "\n".join(f'    "{name}" "\\0"' for name in names)
    return f"{BEGIN}static const uint8_t PRIMER[] =\n{lines};\n"


if __name__ == "__main__":
    for name, text in headers().items():
        (Path(__file__).parent / name).write_text(text)
