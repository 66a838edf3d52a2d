"""The folder of a search: everything needed to continue it, to repeat it and to use what it found.

config.json         what identifies the search; another config is refused
start.pt            the weights it began with
state.pt            where it stands, replaced whole after each trial
history.json        one record per trial
model.safetensors   the best network, as a plain state_dict
front/*.safetensors the Pareto front, named by the number of weights
result.json         the numbers; its presence says that the search is finished

Nothing in it can run code: the .pt files are read with weights_only=True.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from asterism.errors import FormatError, InputError
from asterism.export.checkpoints import write_checkpoint
from asterism.search.pareto import Packed, Point, unpack
from asterism.storage.atomic_files import write_json
from asterism.storage.run_folder import refuse_others
from asterism.storage.snapshots import read_snapshot, write_snapshot

VERSION = 1


class Journal:
    """Writes to a folder, or nowhere; `beside` is JSON to keep there too, by the file's name.

    The folder is claimed with the first state that is worth protecting: what goes wrong before
    that leaves no trace, so that a corrected call may use the same folder.
    """

    def __init__(
        self, folder: str | Path | None, beside: Mapping[str, dict[str, Any]] | None = None
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        self.beside = dict(beside or {})

    def begin(self, config: dict[str, Any], resume: bool) -> None:
        """An error if the folder is another search's; nothing is written yet."""
        if self.folder is None:
            if resume:
                raise InputError("there is nothing to resume without a folder: give run='folder'")
            return
        path, config = self.folder / "config.json", json.loads(json.dumps(config))
        if not path.exists() and (self.folder / "state.pt").exists():
            raise InputError(f"{self.folder} has lost its config.json: choose another folder")
        refuse_others(path, config, resume)
        self.beside["config.json"] = config

    def save(self, state: Mapping[str, Any], points: list[Point], start: Point) -> None:
        """Where the search stands, whole or not at all."""
        if self.folder is None:
            return
        if not (self.folder / "state.pt").exists():
            for name, content in self.beside.items():
                write_json(self.folder / name, content)
            write_snapshot(self.folder / "start.pt", _plain(start))
        plain = {**state, "version": VERSION, "points": [_plain(point) for point in points]}
        write_snapshot(self.folder / "state.pt", plain)

    def load(self) -> tuple[dict[str, Any], list[Point], Point] | None:
        """What `save` wrote last, or None before the first time."""
        if self.folder is None or not (self.folder / "state.pt").exists():
            return None
        state, start = (read_snapshot(self.folder / name) for name in ("state.pt", "start.pt"))
        if state.pop("version", None) != VERSION:
            raise FormatError(f"{self.folder}/state.pt is of another version of asterism")
        try:
            points = [Point(**point) for point in state.pop("points")]
            return state, points, Point(**start)
        except (KeyError, TypeError) as error:
            raise FormatError(f"{self.folder} holds no search: {error}") from error

    def finish(self, result: Mapping[str, Any], best: Point, front: list[Point]) -> None:
        """The networks and the numbers, for others to use."""
        if self.folder is None:
            return
        for point in front:
            save_weights(self.folder / "front" / f"{point.nonzeros:010d}.safetensors", point.packed)
        save_weights(self.folder / "model.safetensors", best.packed)
        write_json(self.folder / "history.json", result["history"])
        write_json(self.folder / "result.json", result)


def save_weights(path: Path, packed: Packed) -> None:
    """As a plain state_dict; what is no tensor has no place in the file."""
    state = {name: each for name, each in unpack(packed).items() if isinstance(each, Tensor)}
    write_checkpoint(path, state)


def _plain(point: Point) -> dict[str, Any]:
    return {**point.summary(), "packed": point.packed}
