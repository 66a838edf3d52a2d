"""The command line: arguments to function calls. No logic of its own.

Heavy imports happen inside the commands, so that `asterism --help` answers at once.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from asterism import __version__
from asterism.errors import InputError

app = typer.Typer(
    help="Sparse neural networks by re-weighted learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


class BudgetName(str, Enum):
    smoke = "smoke"
    quick = "quick"
    standard = "standard"
    paper = "paper"


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"asterism {__version__}")
        raise typer.Exit


@app.command()
def reproduce(
    budget: Annotated[
        BudgetName,
        typer.Option(help="smoke: seconds; quick: minutes; standard: our numbers; paper: literal."),
    ] = BudgetName.quick,
    methods: Annotated[
        str | None, typer.Option(help="Comma-separated rows, e.g. reweighted_l1,dns; default all.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; mean ± std over them.")] = 1,
    data: Annotated[str, typer.Option(help="mnist, or digits, which needs no network.")] = "mnist",
    out: Annotated[
        Path | None, typer.Option(help="Where the run goes; default runs/BUDGET.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what is in the folder.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads; a run resumes exactly at the same number."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print results.json at the end.")] = False,
) -> None:
    """The paper's Table 1 and Figure 1, ours beside theirs.

    Example:  asterism reproduce --budget quick --methods reweighted_l1,magnitude --seeds 3
    """
    import json

    import torch

    from asterism.budgets import budget as find_budget
    from asterism.data import load
    from asterism.progress import monitoring
    from asterism.reproduce import reproduce as run_all

    torch.set_flush_denormal(True)  # weights that sink towards zero would slow the CPU down
    if threads is not None:
        torch.set_num_threads(threads)
    out = out or Path("runs") / budget.value
    chosen = find_budget(budget.value)
    keys = [key.strip() for key in methods.split(",") if key.strip()] if methods else None
    with resumable(), monitoring(chosen, keys, seeds) as monitor:
        results = run_all(
            chosen,
            load(data),
            out,
            methods=keys,
            seeds=seeds,
            resume=resume,
            caption=f"LeNet-5 on {data}, budget {budget.value}; `{command_line()}`",
            monitor=monitor,
        )
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        show(out / "table.md")
    print(f"written to {out}/", file=sys.stderr)


@contextmanager
def resumable() -> Iterator[None]:
    """Ctrl-C ends with one line that says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        print("asterism: interrupted; the same command with --resume goes on", file=sys.stderr)
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
    return shlex.join(["asterism", *sys.argv[1:]])


def main() -> None:
    """Errors a user can mend end in one line and exit code 2."""
    try:
        app()
    except InputError as error:
        print(f"asterism: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
