"""Errors of other people's code, as a single line."""

import pytest

from asterism.errors import LONGEST, one_line


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
