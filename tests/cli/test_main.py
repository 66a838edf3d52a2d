"""The program as a person runs it: whole runs, signals, errors."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from support.command_line import PROGRAM, asterism, process

SMOKE = ["reproduce", "--budget", "smoke", "--data", "digits", "--threads", "1"]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory) -> Path:
    """Every row and the figure at the smallest budget, on data that needs no network."""
    out = tmp_path_factory.mktemp("smoke")
    done = asterism(*SMOKE, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def test_reproduce_writes_every_row(smoke):
    results = json.loads((smoke / "results.json").read_text())
    rows = ["dense", "reweighted_l1", "reweighted_l2", "focuss", "dns", "lwc", "magnitude"]
    assert [record["method"] for record in results] == rows
    for record in results:
        assert record.keys() >= {"seed", "layers", "density_percent", "nonzeros", "epochs"}
        assert record.keys() >= {"test_error_percent", "validation_error_percent", "seconds"}
        assert record["config"]["data"] == "digits"
        assert record["layers"].keys() == {"conv1", "conv2", "fc1", "fc2"}


def test_reproduce_tells_first_what_it_does_and_how_long_it_takes(smoke):
    done = asterism(*SMOKE, "--out", smoke, "--resume")
    first, second = done.stderr.splitlines()[:2]
    assert first == f"LeNet-5 on digits, budget smoke: 9 trainings, into {smoke}/"
    assert second.startswith("less than a minute on this machine")


def test_reproduce_can_be_quiet(smoke):
    done = asterism(*SMOKE, "--out", smoke, "--resume", "-q")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "dense" in done.stdout.lower()


def test_data_of_another_network_is_one_line(tmp_path):
    out = tmp_path / "run"
    done = asterism("reproduce", "--budget", "cifar10", "--data", "digits", "--out", out)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("asterism: ResNet-8 takes images of 3×32×32, and those of digits have")
    assert not out.exists()


def test_the_saved_models_are_as_sparse_as_the_records_say(smoke):
    for record in json.loads((smoke / "results.json").read_text()):
        path = smoke / f"{record['method']}-0" / "model.safetensors"
        state = safetensors.torch.load_file(path)
        found = sum(torch.count_nonzero(t) for name, t in state.items() if "weight" in name)
        assert found == record["nonzeros"]
        assert 100 * found / 430_500 == pytest.approx(record["density_percent"])


def test_the_table_and_the_figure_are_there(smoke):
    table = (smoke / "table.md").read_text()
    assert "paper" not in table, "its figures are of other data"
    assert "FOCUSS" in table
    assert (smoke / "figure1.svg").read_text().startswith("<?xml")
    assert (smoke / "figure1.png").read_bytes().startswith(b"\x89PNG")


def test_a_finished_reproduction_is_not_repeated(smoke):
    before = (smoke / "results.json").read_bytes()
    done = asterism(*SMOKE, "--out", smoke, "--resume", "--json")
    assert done.returncode == 0, done.stderr
    assert "epoch" not in done.stderr
    assert json.loads(done.stdout) == json.loads(before)
    assert (smoke / "results.json").read_bytes() == before


def test_asking_for_one_row_again_keeps_the_others(smoke):
    names = ("results.json", "figure1.svg", "figure1.png")
    before = [(smoke / name).read_bytes() for name in names]
    done = asterism(*SMOKE, "--out", smoke, "--resume", "--methods", " dns , dns")
    assert done.returncode == 0, done.stderr
    assert [(smoke / name).read_bytes() for name in names] == before
    assert "FOCUSS" in (smoke / "table.md").read_text()


def test_a_folder_in_use_is_refused_untouched(smoke):
    before = (smoke / "results.json").read_bytes()
    taken = asterism(*SMOKE, "--out", smoke)
    assert taken.returncode == 2
    assert "add --resume" in taken.stderr
    other = asterism(*SMOKE[:-1], "2", "--out", smoke, "--resume")
    assert other.returncode == 0, "what is finished is read, whatever the number of threads"
    assert (smoke / "results.json").read_bytes() == before


KILLS = [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT]


@pytest.mark.parametrize("how", KILLS)
def test_killed_half_way_and_resumed_ends_in_the_same_bits(how, smoke, tmp_path):
    arguments = [*SMOKE, "--methods", "reweighted_l1", "--out", str(tmp_path)]
    with subprocess.Popen([*PROGRAM, *arguments], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("reweighted_l1-0: reweight 2"):
                time.sleep(0.05)
                process.send_signal(how)
                break
        rest = process.stderr.read()
        code = process.wait(timeout=60)
    if how == signal.SIGINT:
        assert code == 130
        assert rest.splitlines()[-1].endswith("the same command with --resume continues")
    done = asterism(*arguments, "--resume")
    assert done.returncode == 0, done.stderr
    model = Path("reweighted_l1-0", "model.safetensors")
    assert (tmp_path / model).read_bytes() == (smoke / model).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "magic"], "unknown method 'magic': choose from dense"),
        (["--data", "cifar"], "cifar"),
        (["--budget", "huge"], "huge"),
        (["--seeds", "0"], "seeds"),
        (["--out", "/proc/nowhere"], "cannot write /proc/nowhere"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, tmp_path):
    done = asterism(*SMOKE, "--out", tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_process_ends_with_the_same_line_and_code(tmp_path):
    arguments = ["inspect", tmp_path / "none.asterism"]
    here, there = asterism(*arguments), process(*arguments)
    assert there.stderr == here.stderr
    assert there.returncode == here.returncode == 2
    assert len(there.stderr.splitlines()) == 1


def test_no_mnist_to_be_had_names_the_folder_and_the_alternative(tmp_path):
    nowhere = {"ASTERISM_DATA": str(tmp_path), "PATH": ""}
    done = asterism("reproduce", "--budget", "smoke", "--out", tmp_path, env=nowhere)
    assert done.returncode == 2
    assert str(tmp_path / "mnist") in done.stderr
    assert "--data digits" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_shows_an_example():
    done = asterism("reproduce", "--help")
    assert done.returncode == 0
    assert "Example" in done.stdout
    assert process("--version").stdout.startswith("asterism 0.")
