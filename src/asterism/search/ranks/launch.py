"""Whether this process is one of several that torchrun has started; known without torch."""

from __future__ import annotations

import os
from collections.abc import Sequence

from asterism.errors import InputError

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun puts into the environment of each process."""


class EndedError(SystemExit):
    """The launcher ends this process, as it does when another one is gone.

    No `Exception`, so that nobody takes it for an error of a loader or a model.
    """


class FirstRankGoneError(InputError):
    """The rank that speaks is gone, and this is the one that speaks in its place."""


def is_launched() -> bool:
    """Whether torchrun, or what sets the same variables, has started several of this program."""
    return all(name in os.environ for name in VARIABLES) and os.environ["WORLD_SIZE"] != "1"


def is_first() -> bool:
    """Whether this is the process that speaks."""
    return not is_launched() or os.environ["RANK"] == "0"


def local_rank() -> int:
    """The number of this process on its machine, by which it has a device."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def gone(ranks: Sequence[int]) -> str:
    """What to say of ranks that have ended without a word.

    >>> gone([1, 2])
    'ranks 1, 2 are gone, ended from outside: resume=True, or --resume, continues the search'
    """
    those = f"rank {ranks[0]} is" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} are"
    return f"{those} gone, ended from outside: resume=True, or --resume, continues the search"
