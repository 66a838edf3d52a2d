"""Ownership of run folders: which run a folder belongs to, and which process is at work in it.

config.json   what identifies the run; a run with another config is refused
history.json  one record per epoch or trial
result.json   the numbers; its presence means that the run is finished

Owns these three files, the lock and the wording of each refusal, for everything that keeps its
state in a folder. What else a run keeps there is its own affair.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asterism.errors import InputError, LockedError
from asterism.storage.atomic_files import check_writable, read_json, write_json
from asterism.storage.config import differences

if sys.platform != "win32":
    import fcntl


Compare = Callable[[Any, Any], list[str]]

CONFIG, HISTORY, RESULT = "config.json", "history.json", "result.json"


@dataclass(frozen=True)
class RunFolder:
    """A folder in which this process is at work alone; `own` gives it.

    path    the folder
    config  what identifies the run, as plain JSON
    """

    path: Path
    config: dict[str, Any]

    def claim(self) -> None:
        """Writes config.json: from here on the folder is this run's."""
        if not (self.path / CONFIG).exists():
            write_json(self.path / CONFIG, self.config)

    def result(self) -> Any:
        """The numbers of a finished run, as they were given to `finish`, or None."""
        path = self.path / RESULT
        return read_json(path) if path.exists() else None

    def reopen(self) -> None:
        """Takes the numbers away: the run is to be continued beyond its end."""
        (self.path / RESULT).unlink(missing_ok=True)

    def finish(self, history: Sequence[Any], result: Mapping[str, Any]) -> None:
        """The last that a run writes: its history and its numbers."""
        write_json(self.path / HISTORY, list(history))
        write_json(self.path / RESULT, result)


@contextmanager
def own(
    folder: Path, config: dict[str, Any], resume: bool, compare: Compare = differences
) -> Iterator[RunFolder]:
    """A folder for one run: locked, writable, and free or begun by the same config.

    folder   made if it is not there, and taken away again if nothing was written
    config   what identifies the run
    resume   whether a run that the folder holds may be continued
    compare  gives what tells the config in the folder and this one apart

    Whatever is wrong is an InputError before any work, and nothing in the folder is touched.
    """
    plain = json.loads(json.dumps(config))  # as it comes back from the file: lists, no tuples
    with alone_in(folder):
        refuse_others(folder / CONFIG, plain, resume, compare)
        if not (folder / RESULT).exists():  # a finished run is read, if need be from a full disk
            check_writable(folder / CONFIG)
        if (folder / CONFIG).exists() and differences(read_json(folder / CONFIG), plain):
            write_json(folder / CONFIG, plain)  # what was allowed to change
        yield RunFolder(folder, plain)


def refuse_others(
    path: Path, config: dict[str, Any], resume: bool, compare: Compare = differences
) -> None:
    """An error if the file at `path` is of another run, or of one that is not to be resumed.

    path     a file that identifies a run; a folder without it is free
    config   what the file must hold
    resume   whether the run may be continued
    compare  gives what tells the two apart
    """
    if not path.exists():
        return
    folder, found = path.parent, read_json(path)
    changed = compare(found, config)
    if changed:
        advice = "choose another folder, or delete it"
        if changed == ["threads"]:
            advice = f"add --threads {found['threads']}, or {advice}"
        elif all(each.endswith(("max_epochs", "max_minutes")) for each in changed):
            advice = f"a budget may grow, not shrink; or {advice}"
        raise InputError(
            f"{folder} belongs to another config (it differs in {', '.join(changed)}): {advice}"
        )
    if not resume:
        raise InputError(
            f"{folder} holds a run already: add --resume (in Python resume=True),"
            " or choose another folder"
        )


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """A lock on a folder for the block; the lock ends with the process, however that ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
    if sys.platform == "win32":  # nobody is kept out
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _lock(descriptor, folder)
        try:
            yield
        finally:
            with suppress(OSError):  # a run that wrote nothing leaves nothing
                folder.rmdir()
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(
            f"another process is at work in {folder}: wait for its end, or choose another folder"
        ) from None
    except OSError:
        pass  # a file system without locks
