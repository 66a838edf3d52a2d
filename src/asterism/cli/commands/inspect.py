"""`asterism inspect`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.onnx_options import Fix, Shape
from asterism.cli.output import Csv, Json, flat, is_text, print_data
from asterism.cli.source import Source, find_source
from asterism.cli.voice import say_loading_torch

if TYPE_CHECKING:
    from asterism.file import Contents


def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="An .asterism file, an .onnx file, a plain checkpoint, or the folder of a run.",
        ),
    ],
    shape: Shape = None,
    fix: Fix = None,
    as_json: Json = False,
    as_csv: Csv = False,
) -> None:
    """Show what is in a file, layer by layer: non-zeros, live units, bytes.

    A plain checkpoint or an ONNX file is shown as it would be in an .asterism file.

    Example:  asterism inspect net.asterism --json
    """
    from asterism.file.summary import summarise

    text = is_text(as_json, as_csv)
    contents = _contents(find_source(path, shape=shape, fix=fix))
    if text:
        _print_table(contents)
    else:
        summary = summarise(contents)
        print_data(summary, [flat(layer) for layer in summary["layers"]], as_json)


def _contents(source: Source) -> Contents:
    from asterism import file

    path = source.path
    if source.is_onnx:
        return source.imported().contents()
    if not source.has_graph():
        say_loading_torch()
        from asterism.export.checkpoints import as_contents, read_checkpoint

        return as_contents(read_checkpoint(path))
    return file.read(path)


def _print_table(contents: Contents) -> None:
    from rich.console import Console
    from rich.table import Table

    from asterism.file.summary import live_units, other_sizes, summarise, weights

    summary = summarise(contents)
    table = Table(box=None)
    for title in ("layer", "shape", "non-zeros", "%", "live", "bits: position", "value", "bytes"):
        table.add_column(title, justify="left" if title in ("layer", "shape") else "right")
    for record, (name, array) in zip(summary["layers"], weights(contents).items(), strict=True):
        usage, alive = contents.usage[name], max(record["nonzeros"], 1)
        outputs, inputs = live_units(array)
        table.add_row(
            name,
            "×".join(map(str, record["shape"])),
            f"{record['nonzeros']:,}",
            "–" if record["density_percent"] is None else f"{record['density_percent']:.2f}",
            f"{outputs}×{inputs}",
            f"{usage.positions / alive:.2f}",
            f"{usage.values / alive:.2f}",
            f"{record['bytes']:,}",
        )
    console, total = Console(width=None if sys.stdout.isatty() else 120), summary["total"]
    console.print(table)
    others = ", ".join(f"{name} {size:,}" for name, size in other_sizes(contents).items())
    console.print(
        f"{total['nonzeros']:,} of {total['weights']:,} weights in {total['bytes']:,} bytes"
        f" ({contents.mode}), {total['ratio']:.1f}× smaller than in memory; otherwise: {others}"
    )
