"""The folder of a search: everything needed to continue it, to repeat it and to use what it found.

config.json         what identifies the search; another config is refused
about.json          when and with what it was begun; command.json and recipe.json, how
start.pt            the weights it began with
state.pt            where it stands, replaced whole after each trial
history.json        one record per trial
model.safetensors   the best network, as a plain state_dict
front/*.safetensors the Pareto front, named by the number of weights
result.json         the numbers; its presence means that the search is finished

Nothing in it can run code: the .pt files are read with weights_only=True. Ownership of
the folder and its lock are in `asterism.storage.run_folder`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from asterism.errors import FormatError, InputError
from asterism.export.checkpoints import write_checkpoint
from asterism.search.pareto import Point
from asterism.storage.atomic_files import write_json
from asterism.storage.packing import Packed, unpack
from asterism.storage.run_folder import RunFolder, own
from asterism.storage.snapshots import read_snapshot, write_snapshot

VERSION = 1

Files = Mapping[str, dict[str, Any]]


@contextmanager
def open_folder(
    folder: str | Path | None, config: dict[str, Any], resume: bool, beside: Files | None = None
) -> Iterator[SearchFolder]:
    """The folder of one search, locked for the block; an error if it is another's.

    folder  where the search is kept; None for nowhere
    config  what identifies the search
    resume  whether a search that the folder holds is continued
    beside  more JSON to keep there, by the file's name
    """
    if folder is None:
        if resume:
            raise InputError("there is nothing to resume without a folder: give run='folder'")
        yield SearchFolder(None)
        return
    with own(Path(folder), config, resume) as owned:
        if (owned.path / "state.pt").exists() and not (owned.path / "config.json").exists():
            raise InputError(f"{folder} has lost its config.json: choose another folder")
        yield SearchFolder(owned, beside)


class SearchFolder:
    """Writes a search to its folder, or nowhere; `open_folder` gives it.

    The folder is claimed with the first state that is worth protecting: what fails before that
    leaves no trace, and a corrected call may use the same folder.
    """

    def __init__(self, owned: RunFolder | None, beside: Files | None = None) -> None:
        self.owned, self.beside = owned, beside or {}

    def save(self, state: Mapping[str, Any], points: list[Point], start: Point) -> None:
        """Where the search stands, whole or not at all.

        state   the position, as plain data
        points  the networks on the front
        start   the dense network
        """
        if self.owned is None:
            return
        path = self.owned.path
        if not (path / "state.pt").exists():
            for name, content in self.beside.items():
                write_json(path / name, content)
            self.owned.claim()
            write_snapshot(path / "start.pt", _plain(start))
        plain = {**state, "version": VERSION, "points": [_plain(point) for point in points]}
        write_snapshot(path / "state.pt", plain)

    def load(self) -> tuple[dict[str, Any], list[Point], Point] | None:
        """What `save` wrote last, or None before the first time."""
        if self.owned is None or not (self.owned.path / "state.pt").exists():
            return None
        path = self.owned.path
        state, start = (read_snapshot(path / name) for name in ("state.pt", "start.pt"))
        if state.pop("version", None) != VERSION:
            raise FormatError(f"{path}/state.pt is of another version of asterism")
        try:
            points = [Point(**point) for point in state.pop("points")]
            return state, points, Point(**start)
        except (KeyError, TypeError) as error:
            raise FormatError(f"{path} holds no search: {error}") from error

    def finish(self, result: dict[str, Any], best: Point, front: list[Point]) -> None:
        """The networks and the numbers, for others to use.

        result  the content of result.json, with the history
        best    the network that the model holds
        front   all that are worth keeping
        """
        if self.owned is None:
            return
        path = self.owned.path
        for point in front:
            save_weights(path / "front" / f"{point.nonzeros:010d}.safetensors", point.packed)
        save_weights(path / "model.safetensors", best.packed)
        self.owned.finish(result["history"], result)


def save_weights(path: Path, packed: Packed) -> None:
    """As a plain state_dict; what is no tensor has no place in the file."""
    state = {name: each for name, each in unpack(packed).items() if isinstance(each, Tensor)}
    write_checkpoint(path, state)


def _plain(point: Point) -> dict[str, Any]:
    return {**point.summary(), "packed": point.packed}
