"""Whose folder it is: a run writes down what identifies it, and nothing else goes on in its folder.

Owns the refusal and its wording, for every command that keeps its state in a folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from asterism.describe import differences
from asterism.errors import InputError
from asterism.files import read_json, write_json


def refuse_others(path: Path, config: dict[str, Any], resume: bool) -> None:
    """An error if the file at `path` says that its folder is another run's, or not to be resumed.

    Nothing is touched. A folder without the file is free.
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
    """The folder is this run's from here on, or it is refused with nothing in it touched."""
    path = folder / "config.json"
    refuse_others(path, config, resume)
    if not path.exists():
        write_json(path, config)
