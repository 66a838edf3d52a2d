"""Whether this process is one of several that torchrun has started; known without torch."""

from __future__ import annotations

import os

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun puts into the environment of each process."""


def is_launched() -> bool:
    """Whether torchrun, or what sets the same variables, has started several of this program."""
    return all(name in os.environ for name in VARIABLES) and os.environ["WORLD_SIZE"] != "1"


def is_first() -> bool:
    """Whether this is the process that speaks."""
    return not is_launched() or os.environ["RANK"] == "0"


def local_rank() -> int:
    """The number of this process on its machine, by which it has a device."""
    return int(os.environ.get("LOCAL_RANK", "0"))
