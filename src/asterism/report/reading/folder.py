"""Which kind of run a folder holds; it reads three: a reproduction, one row of it, a search."""

from __future__ import annotations

from pathlib import Path

from asterism.errors import FormatError, InputError
from asterism.report.reading.account import Account
from asterism.report.reading.reproductions import read_method, read_reproduction
from asterism.report.reading.searches import read_search
from asterism.storage.atomic_files import read_json


def read_account(folder: Path) -> Account:
    """The account of a run's folder, or an InputError that says what a run's folder has."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: give the folder of a run")
    try:
        found = _read(folder)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise FormatError(f"{folder} holds something else than a run of ours: {error!r}") from error
    if found is not None:
        return found
    if (folder / "config.json").exists():
        raise InputError(f"{folder} holds an unfinished run: finish it with --resume first")
    raise InputError(
        f"{folder} holds no run: there is neither results.json (of `asterism reproduce`)"
        " nor result.json (of one method, or of `asterism sparsify`)"
    )


def _read(folder: Path) -> Account | None:
    if (folder / "results.json").exists():
        return read_reproduction(folder, read_json(folder / "results.json"))
    if (folder / "result.json").exists():
        result = read_json(folder / "result.json")
        return read_search(folder, result) if "front" in result else read_method(folder, result)
    return None
