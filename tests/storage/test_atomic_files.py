import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from asterism.errors import InputError
from asterism.storage.atomic_files import check_writable, read_json, write_atomically, write_json


def full_disk(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("content", [b"", b"new", bytes(range(256)) * 1000])
def test_the_content_is_written_whole_and_nothing_else(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"old")
    write_atomically(path, content)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_is_known_beforehand(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    check_writable(tmp_path / "old")
    check_writable(tmp_path / "new")
    with pytest.raises(InputError, match="it is a folder"):
        check_writable(tmp_path)
    with pytest.raises(InputError, match="cannot write .*x"):
        check_writable(tmp_path / "old" / "x")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("old", b"old")]


def test_folders_are_made(tmp_path: Path) -> None:
    write_atomically(tmp_path / "runs" / "quick" / "x.json", b"{}")
    assert (tmp_path / "runs" / "quick" / "x.json").read_bytes() == b"{}"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, step, full_disk)
    with pytest.raises(InputError, match=r"cannot write .*model\.bin: No space left on device"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interruption_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    left, young = tmp_path / ".model.bin.0123abcd", tmp_path / ".model.bin.4567cdef"
    others = [tmp_path / name for name in (".model.bin.asterism", ".other.bin.0123abcd", "a.bin")]
    for each in (left, young, *others):
        each.write_bytes(b"half")
    for each in (left, *others):
        os.utime(each, (0, 0))
    write_atomically(tmp_path / "model.bin", b"new")
    assert set(tmp_path.iterdir()) == {tmp_path / "model.bin", young, *others}


def test_a_new_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    write_atomically(tmp_path / "ours", b"")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("usual", "ours")]
    assert modes[0] == modes[1]


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="cannot write .*taken: Is a directory"):
        write_atomically(tmp_path / "taken", b"new")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match=r"cannot write .*file/x\.json: "):
        write_atomically(tmp_path / "file" / "x.json", b"new")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "taken"]


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    content = {"name": "ℓ1", "tau": 0.1, "layers": ["fc1", None, True], "n": 3}
    write_json(tmp_path / "x.json", content)
    assert read_json(tmp_path / "x.json") == content
    assert (tmp_path / "x.json").read_text().endswith("}\n")


def test_what_is_no_json_never_replaces_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, 1)
    with pytest.raises(TypeError):
        write_json(path, {"not": object()})
    assert json.loads(path.read_text()) == 1


@pytest.mark.parametrize("broken", [b"", b'{"half":', b"\xff\xfe", b"[" * 100_000])
def test_unreadable_json_is_named(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "history.json"
    path.write_bytes(broken)
    with pytest.raises(InputError, match=r"history\.json is not valid JSON \(.*\): delete it or"):
        read_json(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*x\.json: No such file"):
        read_json(tmp_path / "x.json")
