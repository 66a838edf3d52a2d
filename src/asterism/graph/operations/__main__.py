"""Prints the page about all operations: `python -m asterism.graph.operations`.

What the page claims of an operation is read from the operation itself, and the tests in
tests/graph/test_operations.py hold it to that.
"""

from __future__ import annotations

from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.operation import Operation

INTRODUCTION = """\
# Operations

What a captured network may be made of. This page is written by
`python -m asterism.graph.operations`, and a test fails when it is out of date.

Every operation is one class in `src/asterism/graph/operations`. It has sizes that are checked when
a file is loaded, an implementation in numpy, which runs where nothing is compiled, and one in
torch, which `asterism export` turns into ONNX by torch's exporter. A test compares them all on the
examples that each operation brings. An operation without a compiled kernel makes the whole network
run in numpy; a view has nothing to compute.
"""
COLUMNS = (
    *("Operation", "Code", "Captured from", "Settings", "Weights", "Inputs", "Shapes", "numpy"),
    *("C kernels", "torch", "ONNX"),
)


def page() -> str:
    """The page in Markdown."""
    by_code = sorted(OPERATIONS.values(), key=lambda operation: operation.code)
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_row, by_code)]
    return "\n".join([INTRODUCTION, *(f"| {' | '.join(row)} |" for row in rows), ""])


def _row(operation: Operation) -> tuple[str, ...]:
    settings = [f"{name} = {default}" for name, default in operation.defaults.items()]
    kernels = "a view" if operation.view else _names(operation.kernels) or "no"
    return (
        f"`{operation.name}`",
        str(operation.code),
        _names(operation.captures),
        "a list of sizes" if operation.free else _names(settings),
        str(operation.weights or "–"),
        "any number" if operation.arity < 0 else str(operation.arity),
        *(_has(operation, "shape"), _has(operation, "numpy")),
        kernels,
        _has(operation, "torch"),
        operation.onnx,
    )


def _names(names: tuple[str, ...] | list[str]) -> str:
    return "<br>".join(f"`{name}`" for name in names) or "–"


def _has(operation: Operation, method: str) -> str:
    return "yes" if getattr(type(operation), method) is not getattr(Operation, method) else "no"


if __name__ == "__main__":
    print(page(), end="")
