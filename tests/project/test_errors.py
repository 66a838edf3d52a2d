"""Errors of other people's code, as a single line."""

from pathlib import Path

import pytest

from asterism import errors
from asterism.errors import LONGEST, InputError, install_line, missing, one_line
from support.paths import ROOT


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("plain"), "ValueError: plain"),
        (RuntimeError("Error(s) in loading:\n\tMissing key"), "RuntimeError: Error(s) in loading:"),
        (StopIteration(), "StopIteration"),
        (RuntimeError("x" * 10_000), "RuntimeError: xxx"),
    ],
)
def test_any_error_is_one_line(error: Exception, line: str) -> None:
    found = one_line(error)
    assert found.startswith(line)
    assert len(found.splitlines()) == 1
    assert len(found) < LONGEST + 30


def test_no_line_of_the_message_is_lost() -> None:
    assert one_line(RuntimeError("one\n\ttwo\r\nthree")) == "RuntimeError: one two three"


def test_advice_installs_from_the_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert install_line("report") == "pip install '.[report]'"
    monkeypatch.chdir(tmp_path)
    assert install_line("report") == f"pip install '{ROOT}[report]'"


def test_without_a_clone_advice_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "_clone", lambda: None)
    assert install_line("report").split()[2:] >= ["jinja2", "matplotlib"]
    assert {"jinja2", "matplotlib", "scikit-learn"} <= set(install_line("reproduce").split())


def test_no_advice_trusts_an_index_to_have_our_name() -> None:
    """Nobody has put it there; somebody else may."""
    for path in (ROOT / "src").rglob("*.py"):
        assert "pip install 'asterism" not in path.read_text(), path


def test_a_missing_package_is_an_error_of_both_kinds() -> None:
    error = missing("a report needs matplotlib", "report")
    assert isinstance(error, InputError)
    assert isinstance(error, ImportError)
    assert str(error).startswith("a report needs matplotlib: pip install ")
