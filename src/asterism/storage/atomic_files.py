"""Files that are written whole or not at all: a kill or a full disk leaves the old one."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any
from uuid import uuid4

from asterism.errors import InputError

ABANDONED_SECONDS = 60.0


def write_atomically(path: Path, content: bytes) -> None:
    """The whole content under its final name, or nothing."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def check_writable(path: Path) -> None:
    """The error of `write_atomically`, before the work whose result it would lose."""
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder")
    trial = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _remove_abandoned(path: Path) -> None:
    """What killed writers of the same file have left; one that is being written now is younger."""
    for found in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * 8}"):
        with suppress(FileNotFoundError):  # another writer may be faster
            if time.time() - found.stat().st_mtime > ABANDONED_SECONDS:
                found.unlink()


def write_json(path: Path, content: Any) -> None:
    """Content as indented JSON, whole or not at all."""
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """What a JSON file holds, or an error that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON ({error}): delete it or restore it") from error
