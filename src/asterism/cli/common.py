"""What several commands share."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from asterism.errors import InputError, one_line
from asterism.search.ranks.launch import is_first, is_launched, local_rank

if TYPE_CHECKING:
    from torch import nn


@contextmanager
def resumable() -> Iterator[None]:
    """Ctrl-C ends the command with one line that shows how to continue it."""
    try:
        yield
    except KeyboardInterrupt:
        if is_first():
            print(
                "asterism: interrupted; the same command with --resume continues", file=sys.stderr
            )
        # CPython remembers a Ctrl-C that left source being executed from a string, as tracing does,
        # and would die of the signal whatever the exit code; the next such string makes it forget.
        exec("")
        raise typer.Exit(130) from None


def to_device(network: nn.Module, device: str | None) -> nn.Module:
    """The model on a device by its name; an error where there is none of that name."""
    if device is None:
        return network
    if device == "cuda" and is_launched():
        device = f"cuda:{local_rank()}"
    try:
        return network.to(device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"the model cannot be put on {device!r} ({one_line(error)}): choose cpu, or a device"
            " that this machine and this PyTorch have"
        ) from error


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
