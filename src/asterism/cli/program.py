"""The commands as one program, by typer."""

from __future__ import annotations

from typing import Annotated

import typer

from asterism import __version__
from asterism.cli.commands.bench import bench
from asterism.cli.commands.compress import compress
from asterism.cli.commands.evaluate import evaluate
from asterism.cli.commands.export import export
from asterism.cli.commands.inspect import inspect
from asterism.cli.commands.plan import plan
from asterism.cli.commands.report import report
from asterism.cli.commands.reproduce import reproduce
from asterism.cli.commands.sparsify import sparsify

app = typer.Typer(
    help="Sparse neural networks by re-weighted learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command()(reproduce)
app.command()(plan)
app.command()(compress)
app.command()(inspect)
app.command()(sparsify)
app.command()(evaluate)
app.command()(bench)
app.command()(export)
app.command()(report)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"asterism {__version__}")
        raise typer.Exit
