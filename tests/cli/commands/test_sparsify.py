"""`asterism sparsify` as a person runs it: whole searches, killed and resumed, and errors."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
import safetensors.torch
import torch

from support import command_line
from support.paths import SMALL
from support.small import task, trained, untrained

FACTORIES = [f"{SMALL}:trained", "--data", f"{SMALL}:loaders"]
SEARCH = [*FACTORIES, "--max-drop", "2", "--max-epochs", "20", "--threads", "1"]


def sparsify(*args: object, **options) -> command_line.Finished:
    return command_line.asterism("sparsify", *args, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("search")
    done = command_line.process("sparsify", *SEARCH, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "← the model" in done.stdout
    assert "✓ trained for an epoch without a cut: 9" in done.stderr
    assert f"asterism compress {out} --bits 4" in done.stderr
    return out


def test_the_folder_holds_the_model_the_front_and_the_numbers(run):
    result = json.loads((run / "result.json").read_text())
    model = untrained()
    model.load_state_dict(safetensors.torch.load_file(run / "model.safetensors"))
    assert task().evaluate(model) == result["best"]["metric"]
    assert result["best"]["metric"] >= result["dense"]["metric"] - 2
    assert result["best"]["density"] < 0.5
    files = sorted((run / "front").iterdir(), reverse=True)
    assert [int(path.stem) for path in files] == [each["nonzeros"] for each in result["front"]]
    model.load_state_dict(safetensors.torch.load_file(files[-1]))
    assert task().evaluate(model) == result["front"][-1]["metric"]
    assert json.loads((run / "recipe.json").read_text())["max_drop"] == 2


def test_a_finished_search_is_read_and_not_repeated(run):
    before = (run / "state.pt").read_bytes()
    done = sparsify("--resume", "--out", str(run), "--threads", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert "epoch" not in done.stderr
    assert json.loads(done.stdout) == json.loads((run / "result.json").read_text())
    assert (run / "state.pt").read_bytes() == before


def kill_and_resume(out: Path, wait, kills: int, how=signal.SIGKILL) -> Counter[int]:
    """Ends the search `kills` times, each time when `wait` says so, then lets it finish.

    Gives the exit codes of the processes that were to be ended.
    """
    arguments, ended_by = [*SEARCH, "--out", str(out)], Counter[int]()
    slowly = {**os.environ, "SECONDS_PER_EXAMPLE": "0.0005"}
    for number in range(kills):
        # A kill before anything is written leaves a folder that a fresh start may use as well.
        command = [*command_line.PROGRAM, "sparsify", *arguments, "--resume"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=slowly) as process:
            wait(process, number)
            process.send_signal(how)
            rest = process.stderr.read()
            process.wait(timeout=60)
        assert "Traceback" not in rest
        ended_by[process.returncode] += 1
    done = sparsify(*arguments, "--resume")
    assert done.returncode == 0, done.stderr
    return ended_by


def assert_same_end(out: Path, run: Path) -> None:
    assert (out / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    ends = [json.loads((folder / "result.json").read_text()) for folder in (out, run)]
    for end in ends:
        for record in end["history"]:
            record.pop("seconds")
    assert ends[0] == ends[1]


KILLS = [(signal.SIGKILL, -9), (signal.SIGINT, 130)]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), KILLS)
def test_killed_in_the_middle_of_a_trial_it_ends_in_the_same_bits(how, code, run, tmp_path):
    reached = []

    def wait(process, number: int) -> None:
        trials = (
            line for line in process.stderr if re.match("[✓✗] (trained|re-w|cut to \\S+ %:)", line)
        )
        next(trials)
        reached.append(next(trials))  # so that the trial before it has been saved
        time.sleep(0.02 * (number + 1))

    assert kill_and_resume(tmp_path, wait, kills=2, how=how) == {code: 2}, "not all were hit"
    assert len(set(reached)) == 2, "it did not go on where it was"
    assert_same_end(tmp_path, run)


@pytest.mark.slow
def test_killed_at_twenty_random_moments_it_ends_in_the_same_bits(run, tmp_path):
    moments = random.Random(0)

    def wait(process, number: int) -> None:
        time.sleep(moments.uniform(0.5, 5.0))

    ended_by = kill_and_resume(tmp_path, wait, kills=20)
    assert ended_by[-signal.SIGKILL], "no kill came before the end"
    assert_same_end(tmp_path, run)


def test_a_recipe_says_the_same_as_options(run, tmp_path):
    recipe = tmp_path / "recipe.toml"
    lines = [f'model = "{SMALL}:trained"', f'data = "{SMALL}:loaders"']
    recipe.write_text("\n".join([*lines, "max_drop = 2.0", "max_epochs = 20"]))
    out = tmp_path / "out"
    done = sparsify("--recipe", str(recipe), "--threads", "1", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert_same_end(out, run)


def test_penalties_and_densities_by_pattern(tmp_path):
    out = tmp_path / "out"
    options = ["--penalty", "4=reweighted_l2", "--density", "4=0.75", "--max-epochs", "4"]
    done = sparsify(*SEARCH, *options, "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["best"]["density"] < 0.7
    state = safetensors.torch.load_file(out / "model.safetensors")
    assert int(state["4.weight"].count_nonzero()) == 72
    config = json.loads((out / "config.json").read_text())
    assert config["penalty"]["4"]["kind"] == "ReweightedL2"
    assert config["densities"] == {"4": 0.75}


def test_weights_come_from_a_file(tmp_path):
    torch.save(trained().state_dict(), tmp_path / "dense.pt")
    arguments = [f"{SMALL}:untrained", "--data", f"{SMALL}:loaders", "--max-drop", "2"]
    arguments += ["--max-epochs", "2", "--out", str(tmp_path / "out")]
    done = sparsify(*arguments, "--weights", str(tmp_path / "dense.pt"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["dense"]["metric"] == task().evaluate(trained())


@pytest.mark.slow
def test_a_budget_in_minutes_is_shown_in_minutes(tmp_path):
    """To a person, that is in a terminal."""
    ours, theirs = pty.openpty()
    options = ["--max-drop", "2", "--max-minutes", "0.001", "--out", str(tmp_path / "out")]
    command = [*command_line.PROGRAM, "sparsify", *FACTORIES, *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        assert process.wait(timeout=60) == 0
    os.close(ours)
    assert b"0.0/0.001 min" in shown
    assert b"/60" not in shown


def _read(terminal: int) -> bytes:
    """What has been shown, or nothing once the other end is closed, which Linux calls an error."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""


def test_a_folder_in_use_is_refused_untouched(run):
    before = (run / "state.pt").read_bytes()
    taken = sparsify(*SEARCH, "--out", str(run))
    assert taken.returncode == 2
    assert "add --resume" in taken.stderr
    other = sparsify(*SEARCH, "--resume", "--max-drop", "3", "--out", str(run))
    assert other.returncode == 2
    assert "another config (it differs in max_drop): choose another folder" in other.stderr
    threads = sparsify(*SEARCH, "--resume", "--threads", "2", "--out", str(run))
    assert threads.returncode == 2
    assert "another config (it differs in threads): add --threads 1, or" in threads.stderr
    assert (run / "state.pt").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the model is not given: add net.py:model"),
        (["--resume"], "out holds no search to continue"),
        (["nowhere.py:make", "--data", "x:y", "--max-drop", "1"], "there is no file nowhere.py"),
        ([*FACTORIES], "the max_drop is not given: add --max-drop 0.2"),
        ([*FACTORIES, "--max-drop", "-1"], "max_drop must be at least 0"),
        ([*FACTORIES, "--max-drop", "1", "--exclude", "conv*"], "no layer matches the pattern"),
        ([*FACTORIES, "--max-drop", "1", "--density", "4=half"], "--density is a share of the"),
        ([*FACTORIES, "--max-drop", "1", "--optimizer", "magic"], "unknown optimizer 'magic'"),
        ([*FACTORIES, "--max-drop", "1", "--lr", "0.1"], "lr needs an optimizer: sgd or adamw"),
        ([*FACTORIES, "--max-drop", "1", "--weights", "none.pt"], "cannot read none.pt"),
        ([*FACTORIES, "--max-drop", "1", "--weights", SMALL], "is no checkpoint that can be read"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, tmp_path):
    done = sparsify("-q", *arguments, "--out", str(tmp_path / "out"), cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_dorp = 1", "has an unknown key 'max_dorp'"),
        ('max_drop = "much"', "max_drop must be a number"),
        ("max_drop = ", "is not valid TOML"),
        ("max_drop = 1", 'has no model: add a line model = "net.py:model"'),
    ],
)
def test_a_bad_recipe_is_one_line(text, message, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(text)
    done = sparsify("--recipe", str(recipe), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_help_shows_an_example():
    done = sparsify("--help")
    assert done.returncode == 0
    assert "Example" in done.stdout


def test_the_budget_grows_by_the_command_alone(tmp_path):
    out = tmp_path / "out"
    few = [*FACTORIES, "--max-drop", "2", "--max-epochs", "4", "--threads", "1", "--out", out]
    assert sparsify(*few).returncode == 0
    done = sparsify("--resume", "--max-epochs", "8", "--threads", "1", "--out", out)
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "recipe.json").read_text())["max_epochs"] == 8
    assert json.loads((out / "result.json").read_text())["history"][-1]["epochs"] > 4
    assert sparsify("--resume", "--threads", "1", "--out", out).returncode == 0
    done = sparsify("--resume", "--max-epochs", "6", "--threads", "1", "--out", out)
    assert done.returncode == 2
    assert "a budget may grow, not shrink" in done.stderr


def test_device_and_precision_are_part_of_the_recipe(tmp_path):
    few = [*FACTORIES, "--max-drop", "2", "--max-epochs", "2", "--threads", "1"]
    done = sparsify(*few, "--device", "cpu", "--amp", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    recipe = json.loads((tmp_path / "out" / "recipe.json").read_text())
    assert (recipe["device"], recipe["amp"]) == ("cpu", True)
    done = sparsify(*few, "--device", "nowhere", "--out", tmp_path / "other")
    assert done.returncode == 2
    assert "cannot be put on 'nowhere'" in done.stderr
    assert len(done.stderr.splitlines()) <= 2
