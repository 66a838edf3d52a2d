"""What every command has: an example in its help, JSON and CSV, -q and -v, a first line at once."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import subprocess
from pathlib import Path

import pytest
import torch

from asterism.export.checkpoints import save
from support import small
from support.command_line import PROGRAM, asterism
from support.paths import ROOT, SMALL

COMMANDS = sorted(
    path.stem for path in (ROOT / "src" / "asterism" / "cli" / "commands").glob("[a-z]*.py")
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.asterism"
    save(small.trained().eval(), path, example_inputs=(torch.zeros(1, 20),))
    return path


def calls(file: Path) -> dict[str, list[object]]:
    """Each command that prints a result, as shortly as it can be called."""
    factories = [f"{SMALL}:trained", "--data", f"{SMALL}:loaders"]
    return {
        "bench": [file, "--batch", "1", "--seconds", "0.1"],
        "compress": [file, "--bits", "5", "--out", file.with_name("few.asterism")],
        "evaluate": [file, "--data", f"{SMALL}:loaders"],
        "export": [file, file.with_suffix(".onnx")],
        "inspect": [file],
        "plan": factories,
        "sparsify": [*factories, "--max-drop", "2", "--max-epochs", "2"],
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_no_types_of_python(command: str) -> None:
    text = asterism(command, "--help").stdout
    assert f"Example:  asterism {command}" in re.sub(r"\s*\n\s*", " ", text)
    assert not re.findall(r"<\w+(?:\[\w+\])?>", text)
    assert "--quiet" in text


@pytest.mark.parametrize("command", calls(Path("net.asterism")))
def test_a_result_is_had_as_json_and_as_csv(command: str, file: Path, tmp_path: Path) -> None:
    arguments = calls(file)[command]
    for form in ("--json", "--csv"):
        out = ["--out", tmp_path / form] if command == "sparsify" else []
        done = asterism(command, *arguments, *out, form)
        assert done.returncode == 0, done.stderr
        if form == "--json":
            assert json.loads(done.stdout)
        else:
            rows = list(csv.DictReader(io.StringIO(done.stdout)))
            assert rows
            assert None not in rows[0], "each row has the columns of the header"


def test_two_forms_at_once_are_refused(file: Path) -> None:
    done = asterism("inspect", file, "--json", "--csv")
    assert done.returncode == 2
    assert "--json and --csv exclude each other" in done.stderr


def test_quiet_leaves_the_result_alone(file: Path, tmp_path: Path) -> None:
    arguments = calls(file)["sparsify"]
    done = asterism("sparsify", *arguments, "-q", "--out", tmp_path / "out")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "← the model" in done.stdout


def test_verbose_adds_the_log_and_takes_it_away_again(file: Path, tmp_path: Path) -> None:
    before = list(logging.getLogger("asterism").handlers)
    done = asterism("sparsify", *calls(file)["sparsify"], "-v", "--out", tmp_path / "out")
    assert done.returncode == 0
    assert re.search(r"^\d\d:\d\d:\d\d training without a cut: 1 epochs$", done.stderr, re.M)
    assert done.stderr.count("• dense: ") == 1
    assert logging.getLogger("asterism").handlers == before


def test_the_first_line_comes_before_torch(tmp_path: Path) -> None:
    """Torch, which takes seconds, is here one that does not come at all."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was asked for')")
    done = subprocess.run(
        [*PROGRAM, "plan", "net.py:model"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines() == ["asterism: loading PyTorch …", "torch was asked for"]
