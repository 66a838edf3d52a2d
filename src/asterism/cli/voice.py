"""How much a command says beside its result: -q for nothing, -v for the log.

Of several ranks the first speaks.

Every command gets both options here, at its registration, and says within a second that it loads
torch, which can take many.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from asterism.search.ranks.launch import is_first

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result and errors alone.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print the log as well.")]
ADDED: dict[str, Any] = {"quiet": Quiet, "verbose": Verbose}

_quiet = False


def is_quiet() -> bool:
    """Whether the command was told to print its result alone."""
    return _quiet


def say(text: str) -> None:
    """Something for a person, on standard error."""
    if not _quiet:
        print(text, file=sys.stderr, flush=True)


def say_loading_torch() -> None:
    """That torch is being loaded, unless it is there."""
    if "torch" not in sys.modules:
        say("asterism: loading PyTorch …")


def with_voice(command: Callable[..., None], needs_torch: bool = True) -> Callable[..., None]:
    """The command with -q and -v.

    command      as its module defines it
    needs_torch  whether it is told that torch is being loaded
    """

    @functools.wraps(command)
    def run(*args: Any, quiet: bool = False, verbose: bool = False, **kwargs: Any) -> None:
        with _speaking(quiet or not is_first(), verbose and is_first()):
            if needs_torch:
                say_loading_torch()
            command(*args, **kwargs)

    signature = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in ADDED.items()
    ]
    parameters = [*signature.parameters.values(), *added]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


@contextmanager
def _speaking(quiet: bool, verbose: bool) -> Iterator[None]:
    global _quiet
    logger, handler = logging.getLogger("asterism"), _ToStandardError()
    before, level, _quiet = _quiet, logger.level, quiet
    if verbose:
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        _quiet = before
        logger.removeHandler(handler)
        logger.setLevel(level)


class _ToStandardError(logging.Handler):
    """To what standard error is at the moment: a bar redirects it while it is drawn."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)
