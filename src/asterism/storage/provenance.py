"""When and with what a run was made: the date, the versions, the commit of the code."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from asterism import __version__

PATIENCE = 5.0
"""Seconds that git may take; a run does not wait longer for a detail."""


@dataclass(frozen=True)
class Provenance:
    """When and with what a run was made.

    date      of this record, in UTC, as ISO 8601 has it
    versions  of what decides the numbers
    commit    of the git repository in which it was started, with "-dirty" where files had been
              changed; None outside of one
    """

    date: str
    versions: dict[str, str] = field(default_factory=dict)
    commit: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, for a run's files."""
        return asdict(self)


def provenance() -> Provenance:
    """The provenance of a run that is made now."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Provenance(now, versions(), commit(Path.cwd()))


def versions() -> dict[str, str]:
    """The versions of what decides the numbers."""
    return {
        "asterism": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def commit(folder: Path) -> str | None:
    """The commit that a folder of a git repository is at; None without git or a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    # Without optional locks git reads only, and disturbs no other git in the same repository.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
