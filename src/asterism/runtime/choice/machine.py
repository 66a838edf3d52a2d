"""What is known of this machine: how fast its kernels are, as `calibration` measured and kept it.

Factors are in the user's cache folder, a file for each processor and instruction set. They are read
where there are some, and ASTERISM_CALIBRATION=none leaves them out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import asterism.kernels.library as library
import asterism.runtime.choice.cost as cost

VERSION = 4  # of the kernels and of the cost model that the factors are of
LEAST, MOST = 0.1, 10.0  # a factor beyond is not believed


def machine(level: int) -> cost.Machine:
    """What is known of this machine, for kernels of an instruction set."""
    return cost.Machine({} if is_off() else known(level))


measured: dict[int, Mapping[str, float]] = {}  # in this process, by the level of the kernels


def known(level: int) -> Mapping[str, float]:
    return measured.get(level) or _read(level)


def is_off() -> bool:
    return os.environ.get("ASTERISM_CALIBRATION") == "none"


@cache
def _read(level: int) -> Mapping[str, float]:
    """The factors that were kept; none where there are none, or where the file is damaged."""
    if not _folder().is_dir():
        return {}
    import json  # at need: a network should be there soon

    try:
        kept = json.loads(_path(level).read_bytes())
        factors = {str(kind): float(factor) for kind, factor in kept["factors"].items()}
        right = kept["processor"] == processor()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    return factors if right and all(LEAST <= each <= MOST for each in factors.values()) else {}


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "asterism")


def _path(level: int) -> Path:
    name = "".join(each if each.isalnum() else "-" for each in processor())
    return _folder() / f"kernels-{VERSION}-{library.LEVELS[level]}-{name}.json"


@cache
def processor() -> str:
    """The name of this processor, as far as the system tells."""
    if sys.platform == "linux":
        try:
            # Its first lines: where there are a hundred processors the whole takes a while.
            with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
                lines = file.read(4096).splitlines()
        except OSError:
            lines = []
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    import platform

    return platform.processor() or platform.machine()


def keep(level: int, factors: Mapping[str, float]) -> None:
    """Has this process know factors, and all that come after it; InputError if that cannot be."""
    measured[level] = factors
    from asterism.storage.atomic_files import write_json

    write_json(_path(level), {"processor": processor(), "factors": dict(factors)})
