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


# Operations that the library checks, prepares and runs by the same functions, and those that have
# functions of their own. One that is missing here is refused by its name.
KINDS = {
    "each": "relu gelu silu sigmoid tanh leaky_relu clamp scale_shift hard_swish hard_sigmoid elu"
    " power mish exp log abs softplus erf",
    "two": "add mul sub div maximum minimum equal greater keep",
    "convolution": "conv conv3d conv_transpose",
    "pooling": "max_pool avg_pool adaptive_avg_pool adaptive_max_pool",
    "norm": "batch_norm layer_norm rms_norm group_norm",
    "view": "flatten reshape",
    "moving": "permute slice expand",
    "softmax": "softmax log_softmax",
    "constant": "weight weight_norm cut",
    "recurrent": "lstm gru",
}
ALONE = (
    *("linear", "prelu", "cat", "pad", "mean"),
    *("resize", "attention", "hide", "matmul", "embedding"),
)
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split()}
KIND_OF |= {name: name for name in ALONE}

FOUND = sorted(OPERATIONS.values(), key=lambda operation: operation.code)


def _names() -> str:
    """An enumeration of operations, one of their kinds, and one of the settings of each."""
    kinds = ["unknown", *KINDS, *ALONE]
    parts = [_enum([f"op_{each.name}" for each in FOUND])]
    parts += [_enum([f"kind_{kind}" for kind in kinds])]
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
    kind = f"KIND_{KIND_OF.get(operation.name, 'unknown').upper()}"
    sizes = f"{operation.code}, {operation.arity}, {operation.weights}, {len(defaults)}"
    return f'    {{"{operation.name}", {kind}, {sizes}, {flags}, {{{numbers}}}, {floats}}},'


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
