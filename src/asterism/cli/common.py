"""What several commands share."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from asterism.search.task import Supervised


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


def network_and_task(
    model: str, data: str, state: dict[str, Tensor], checkpoint: Path
) -> tuple[nn.Module, Supervised]:
    """The network with the weights of a checkpoint, in eval mode, and the task of its data.

    model, data  the names of the two factories
    state        the weights that were read
    checkpoint   the file that they come from, for the error
    """
    from asterism.cli.factories import make_data, make_model
    from asterism.export.checkpoints import put_into
    from asterism.search.task import supervised

    network = make_model(model)
    put_into(network, state, checkpoint)
    return network.eval(), supervised(**make_data(data))
