"""A folder belongs to one run, and one process is at work in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from asterism.errors import InputError
from asterism.storage.run_folder import alone_in, own

CONFIG = {"seed": 0, "shape": (3, 4), "threads": 2}


def test_a_run_is_claimed_finished_and_read(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with own(folder, CONFIG, resume=False) as owned:
        assert owned.result() is None
        owned.claim()
        owned.finish([{"epoch": 1}], {"error": 0.8})
    with own(folder, CONFIG, resume=True) as owned:
        assert owned.result() == {"error": 0.8}
    assert json.loads((folder / "config.json").read_text()) == {**CONFIG, "shape": [3, 4]}
    assert json.loads((folder / "history.json").read_text()) == [{"epoch": 1}]


def test_what_was_never_claimed_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(ZeroDivisionError), own(folder, CONFIG, resume=False):
        _ = 1 / 0
    assert not folder.exists()


@pytest.mark.parametrize(
    ("config", "resume", "message"),
    [
        (CONFIG, False, r"holds a run already: add --resume \(in Python resume=True\)"),
        ({**CONFIG, "seed": 1}, True, "another config .it differs in seed.: choose another"),
        ({**CONFIG, "threads": 4}, True, "it differs in threads.: add --threads 2, or choose"),
    ],
)
def test_others_are_refused_and_nothing_is_touched(
    config: dict[str, object], resume: bool, message: str, tmp_path: Path
) -> None:
    with own(tmp_path, CONFIG, resume=False) as owned:
        owned.claim()
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(InputError, match=message), own(tmp_path, config, resume):
        pass
    assert (tmp_path / "config.json").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_one_at_a_time(tmp_path: Path) -> None:
    with own(tmp_path / "run", CONFIG, resume=False) as owned:
        owned.claim()
        with pytest.raises(InputError, match="another process is at work in .*: wait for its end"):
            alone_in(tmp_path / "run").__enter__()
    with own(tmp_path / "run", CONFIG, resume=True):
        pass


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "run", Path("/proc/self")):
        with pytest.raises(InputError, match="cannot write"), own(place, CONFIG, resume=False):
            pass
