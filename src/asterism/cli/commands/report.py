"""`asterism report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asterism.cli.voice import say


def report(
    run: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a run.")],
    out: Annotated[
        Path | None, typer.Option(help="The page to write; default report.html in the folder.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Make one HTML page of a run: trade-off, layers, weights, size, settings.

    The folder is that of `asterism reproduce`, of one method in it, or of `asterism sparsify`. What
    `asterism bench FILE --json` prints is shown too if it is kept in the folder as bench.json.

    Example:  asterism report runs/quick --open
    """
    from asterism.report.page import render
    from asterism.storage.atomic_files import write_atomically

    path = out or run / "report.html"
    write_atomically(path, render(run).encode())
    print(path)
    if show:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            say(f"asterism: no browser found: open {path} yourself")
