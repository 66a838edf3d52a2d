"""The command line and scripts as a user gets them: in this process, or in one of its own.

In this process is ten times as fast and goes through the same `main`, so that arguments, output,
errors and exit codes are the ones of the program. What only a process has (signals, a terminal,
`python -m`) needs one.
"""

from __future__ import annotations

import contextlib
import io
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from asterism.cli import main

Finished = subprocess.CompletedProcess[str]
PROGRAM = [sys.executable, "-m", "asterism.cli"]


def asterism(*args: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> Finished:
    """`asterism ARGS` in this process; `env` adds to the environment."""
    line = ["asterism", *map(str, args)]
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        _arranged(line, cwd, env or {}),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        pytest.raises(SystemExit) as ended,  # an error that is none of ours gets through
    ):
        main()
    return Finished(line, int(ended.value.code or 0), stdout.getvalue(), stderr.getvalue())


def script(path: Path, *args: object, cwd: Path) -> str:
    """What `python PATH ARGS` prints, in this process."""
    stdout = io.StringIO()
    line = [str(path), *map(str, args)]
    with _arranged(line, cwd, {}), contextlib.redirect_stdout(stdout):
        runpy.run_path(str(path), run_name="__main__")
    return stdout.getvalue()


@contextlib.contextmanager
def _arranged(line: list[str], cwd: Path | None, env: dict[str, str]) -> Iterator[None]:
    """All that the program finds in a process or changes there, and puts it back."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        patch.setattr(sys, "argv", line)
        for name, value in env.items():
            patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.set_flush_denormal(False)


def process(*args: object) -> Finished:
    """`python -m asterism.cli ARGS` in a process of its own."""
    command = [*PROGRAM, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
