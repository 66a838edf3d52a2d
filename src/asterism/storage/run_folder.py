"""Ownership of run folders: one run a folder, one process at a time.

A run writes down what identifies it, and any other is refused. Owns the refusal and its wording,
for everything that keeps its state in a folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from asterism.errors import InputError
from asterism.storage.atomic_files import read_json, write_json
from asterism.storage.config import differences

if sys.platform != "win32":
    import fcntl


def refuse_others(path: Path, config: dict[str, Any], resume: bool) -> None:
    """Raises an error if a folder belongs to another run, or to this one and is not to be resumed.

    Nothing is touched. A folder without the file is free.

    path    the file in the folder that says whose it is
    config  what identifies this run
    resume  whether this run may continue what is there
    """
    if not path.exists():
        return
    folder, found = path.parent, read_json(path)
    changed = differences(found, config)
    if changed:
        advice = "choose another folder, or delete it"
        if changed == ["threads"]:
            advice = f"add --threads {found['threads']}, or {advice}"
        raise InputError(
            f"{folder} belongs to another config (it differs in {', '.join(changed)}): {advice}"
        )
    if not resume:
        raise InputError(f"{folder} holds a run already: add --resume, or choose another folder")


def claim(folder: Path, config: dict[str, Any], resume: bool) -> None:
    """Makes the folder this run's, or refuses it with nothing in it touched.

    folder  where the run keeps its state
    config  what identifies the run: config.json
    resume  whether it may continue what is there
    """
    path = folder / "config.json"
    refuse_others(path, config, resume)
    if not path.exists():
        write_json(path, config)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Locks a folder for the block; other processes are refused.

    The lock ends with the process, however that ends.
    """
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
        raise InputError(f"another process is at work in {folder}") from None
    except OSError:
        pass  # a file system without locks
