"""A command's result on standard output: as text, as JSON or as CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from asterism.errors import InputError

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print the result as CSV.")]


def is_text(as_json: bool, as_csv: bool) -> bool:
    """Whether the result is for a person; an error where it is to be in two forms."""
    if as_json and as_csv:
        raise InputError("--json and --csv exclude each other: choose one")
    return not (as_json or as_csv)


def print_data(result: Any, rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """The result for a program.

    result   for JSON, whole
    rows     for CSV, each with the same keys
    as_json  which of the two
    """
    if as_json:
        print(json.dumps(result, indent=2))
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A record as one row: what is inside of others gets a dotted name.

    >>> flat({"density": 0.5, "layers": {"fc": 3}, "shape": [2, 3]})
    {'density': 0.5, 'layers.fc': 3, 'shape': '2x3'}
    """
    row: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            row |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            row[prefix + name] = "x".join(map(str, value))
        else:
            row[prefix + name] = value
    return row
