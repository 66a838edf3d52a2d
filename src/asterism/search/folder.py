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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from asterism.errors import FormatError, InputError
from asterism.export.checkpoints import write_checkpoint
from asterism.search.limits import SearchBudget
from asterism.search.pareto import Point
from asterism.search.ranks.crew import ALONE, Crew
from asterism.storage.atomic_files import write_json
from asterism.storage.config import differences
from asterism.storage.packing import Packed, unpack
from asterism.storage.run_folder import RunFolder, own
from asterism.storage.snapshots import read_snapshot, write_snapshot

VERSION = 1
LIMITS = ("max_epochs", "max_minutes")

Files = Mapping[str, dict[str, Any]]


@contextmanager
def open_folder(
    folder: str | Path | None,
    config: dict[str, Any],
    resume: bool,
    beside: Files | None = None,
    crew: Crew = ALONE,
) -> Iterator[SearchFolder]:
    """The folder of one search, locked for the block; an error if it is another's.

    folder  where the search is kept; None for nowhere
    config  what identifies the search
    resume  whether a search that the folder holds is continued
    beside  more JSON to keep there, by the file's name
    crew    the ranks of the search, of which the first alone uses the folder
    """
    if folder is None and resume:
        raise InputError("there is nothing to resume without a folder: give run='folder'")
    path = None if folder is None else Path(folder)
    with ExitStack() as stack:
        found = SearchFolder(None)

        def enter() -> None:
            nonlocal found
            if path is not None:
                found = stack.enter_context(_owned_folder(path, config, resume, beside))

        crew.decide(enter)
        yield found


@contextmanager
def _owned_folder(
    path: Path, config: dict[str, Any], resume: bool, beside: Files | None
) -> Iterator[SearchFolder]:
    with own(path, config, resume, changes_beyond_budget) as owned:
        if (path / "state.pt").exists() and not (path / "config.json").exists():
            raise InputError(f"{path} has lost its config.json: choose another folder")
        for name, content in (beside or {}).items():
            if (path / name).exists() and any(limit in content for limit in LIMITS):
                write_json(path / name, content)  # with the budget, which may have grown
        yield SearchFolder(owned, beside)


def changes_beyond_budget(found: Any, config: Any) -> list[str]:
    """Where two configs differ, or two recipes; a budget that has grown is no difference.

    Nor is another number of ranks, and with it of threads in each: sums over ranks are rounded in
    another order anyway.

    >>> changes_beyond_budget({"max_epochs": 60, "seed": 0}, {"max_epochs": 80, "seed": 1})
    ['seed']
    """
    before, now = _budget(found), _budget(config)
    changed = differences(found, config)
    if "ranks" in changed:
        changed = [each for each in changed if each not in ("ranks", "threads")]
    if before is None or now is None or not now.covers(before):
        return changed
    return [each for each in changed if each.split(".")[-1] not in LIMITS]


def _budget(settings: Any) -> SearchBudget | None:
    """The budget in a config, where it is a part, or in a recipe, where it is spread out."""
    try:
        part = settings.get("budget", settings)
        return SearchBudget(**{name: part.get(name) for name in (*LIMITS, "epochs_per_cut")})
    except (AttributeError, TypeError, InputError):
        return None


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

    def reopen(self) -> None:
        """Before a finished search is continued with a larger budget."""
        if self.owned is not None:
            self.owned.reopen()

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
