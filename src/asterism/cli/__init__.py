"""The command line: arguments to function calls. One module per command, no logic of its own.

Heavy imports happen inside the commands, so that `asterism --help` answers at once. Where numpy is
all that is installed, the program tells what it can do and what to install.

    commands/    one file for each command
    program      the commands as one program
    voice        -q and -v: what a command says beside its result
    output       the result as text, JSON or CSV
    plain_help   the help in words
    common       what several commands share
    launcher     a line where torchrun ends the ranks that are left
    source       a file, or the folder of a run, with its model and data
    onnx_options what an ONNX file leaves open
    factories    models and data by the name of the function that makes them
    recipe_file  the settings of a search in a TOML file
    progress     bars for a person, lines for a pipe
    layer_table  the layers of a network in training, redrawn in place
"""

from __future__ import annotations

import signal
import sys
import warnings
from typing import Any

from asterism import __version__
from asterism.errors import InputError, install_line
from asterism.search.ranks.launch import FirstRankGoneError, is_first, is_launched

COMMANDS_NEED = ("torch", "typer", "rich", "safetensors", "tomli")
"""What the commands need beside numpy."""


def main() -> None:
    """The program `asterism`: an error that a user can correct is one line and exit code 2."""
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        try:
            _run()
        except InputError as error:
            if is_launched():
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the line below comes first
            if is_first() or isinstance(error, FirstRankGoneError):
                print(f"asterism: {error}", file=sys.stderr, flush=True)
            sys.exit(2)


def _run() -> None:
    try:
        from asterism.cli.program import app

        app()
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in COMMANDS_NEED:
            raise
        _run_alone(str(error.name), sys.argv[1:])


def _run_alone(missing: str, arguments: list[str]) -> None:
    """What can be said where only numpy is installed."""
    if arguments == ["--version"]:
        print(f"asterism {__version__}")
    elif arguments and set(arguments) != {"--help"}:
        raise InputError(f"this command needs {missing}: {install_line('train')}")
    else:
        print(ALONE.format(version=__version__, line=install_line("train")))


ALONE = """asterism {version}, the runtime alone. In Python it runs saved networks with numpy:

    import asterism
    answers = asterism.runtime.load("net.asterism")(inputs)

The commands (sparsify, plan, compress, evaluate, export, inspect, bench, report, reproduce) need
torch and a few small packages:

    {line}"""


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """On one line, without the place in the code, which is not the user's."""
    if is_first():
        print(f"asterism: warning: {message}", file=sys.stderr)


def __getattr__(name: str) -> Any:
    if name == "app":
        from asterism.cli.program import app

        return app
    raise AttributeError(f"module 'asterism.cli' has no attribute {name!r}")
