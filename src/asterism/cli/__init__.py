"""The command line: arguments to function calls. One module per command, no logic of its own.

Heavy imports happen inside the commands, so that `asterism --help` answers at once.

    commands/    one file for each command
    common       what several commands share
    source       a file, or the folder of a run, with its model and data
    factories    models and data by the name of the function that makes them
    recipe_file  the settings of a search in a TOML file
    progress     bars for a person, lines for a pipe
    layer_table  the layers of a network in training, redrawn in place
"""

from __future__ import annotations

import sys
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
from asterism.errors import InputError

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


def main() -> None:
    """The program `asterism`: an error that a user can correct is one line and exit code 2."""
    try:
        app()
    except InputError as error:
        print(f"asterism: {error}", file=sys.stderr)
        sys.exit(2)
