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
from asterism.cli.plain_help import PlainCommand, PlainGroup
from asterism.cli.voice import with_voice

app = typer.Typer(
    help="Make neural networks sparse, save them small, run them without PyTorch.\n\nStart with:"
    "  asterism sparsify net.py:model --data net.py:loaders --max-drop 0.2 --out runs/net",
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for _command in (sparsify, plan, report, compress, evaluate, inspect, bench, export, reproduce):
    _always = _command not in (compress, inspect)  # which tell themselves when they need torch
    app.command(cls=PlainCommand)(with_voice(_command, needs_torch=_always))


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"asterism {__version__}")
        raise typer.Exit
