"""What several commands share."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer


@contextmanager
def resumable() -> Iterator[None]:
    """Ctrl-C ends the command with one line that shows how to continue it."""
    try:
        yield
    except KeyboardInterrupt:
        print("asterism: interrupted; the same command with --resume continues", file=sys.stderr)
        # CPython remembers a Ctrl-C that left source being executed from a string, as tracing does,
        # and would die of the signal whatever the exit code; the next such string makes it forget.
        exec("")
        raise typer.Exit(130) from None


def show(page: Path) -> None:
    """Markdown, laid out for the terminal's width, or as it is into a pipe."""
    from rich.console import Console
    from rich.markdown import Markdown

    text, console = page.read_text(encoding="utf-8"), Console()
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        print(text)


def command_line() -> str:
    """The command as it was typed."""
    return shlex.join(["asterism", *sys.argv[1:]])
