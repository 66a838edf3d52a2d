"""The folder of a run in the place of a file, for every command that takes one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from asterism.cli.source import find_source
from asterism.errors import InputError
from support import small
from support.command_line import asterism
from support.paths import SMALL


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "net"
    options = ["--max-drop", "2", "--max-epochs", "6", "--threads", "1", "--out", out]
    done = asterism("sparsify", f"{SMALL}:trained", "--data", f"{SMALL}:loaders", *options)
    assert done.returncode == 0, done.stderr
    return out


def test_evaluate_agrees_with_the_search(run):
    done = asterism("evaluate", run, "--json")
    assert done.returncode == 0, done.stderr
    best = json.loads((run / "result.json").read_text())["best"]
    assert json.loads(done.stdout)["metric"] == best["metric"]


def test_compress_knows_model_and_data_and_so_does_the_file_that_it_writes(run):
    done = asterism("compress", run, "--bits", "5")
    assert done.returncode == 0, done.stderr
    assert (run / "model.asterism").exists()
    done = asterism("evaluate", run / "model.asterism", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["examples"] == 512


def test_the_least_bits_are_chosen_from_the_folder_alone(run, tmp_path):
    done = asterism("compress", run, "--max-drop", "1", "--out", tmp_path / "net.asterism")
    assert done.returncode == 0, done.stderr
    assert "metric: " in done.stdout


@pytest.mark.parametrize("command", ["inspect", "bench"])
def test_other_commands_take_the_folder(command, run):
    options = ["--batch", "1", "--seconds", "0.1"] if command == "bench" else []
    done = asterism(command, run, *options, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_export_takes_the_folder(run, tmp_path):
    done = asterism("export", run, tmp_path / "net.onnx")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "net.onnx").stat().st_size > 100


def test_a_network_of_the_front_belongs_to_the_run(run):
    file = next((run / "front").iterdir())
    assert find_source(file).model == f"{SMALL}:trained"


def test_options_go_before_what_the_folder_tells(run):
    assert find_source(run, data="other.py:loaders").data == "other.py:loaders"


def test_a_factory_is_found_where_the_search_was_begun(tmp_path):
    (tmp_path / "net.py").write_text(Path(SMALL).read_text())
    began = [tmp_path / "run", "--max-drop", "2", "--max-epochs", "2", "--threads", "1"]
    done = asterism(
        "sparsify", "net.py:trained", "--data", "net.py:loaders", "--out", *began, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    done = asterism("evaluate", tmp_path / "run", cwd=Path("/"))
    assert done.returncode == 0, done.stderr


def test_a_folder_without_a_network_says_what_is_missing(tmp_path):
    with pytest.raises(InputError, match=r"holds no model.safetensors of a finished run"):
        find_source(tmp_path)
    (tmp_path / "dns-0").mkdir()
    (tmp_path / "dns-0" / "model.safetensors").touch()
    with pytest.raises(InputError, match="choose one of its runs: dns-0"):
        find_source(tmp_path)
    (tmp_path / "state.pt").touch()
    with pytest.raises(InputError, match="asterism sparsify --resume --out"):
        find_source(tmp_path)


def test_the_run_of_a_reproduction_knows_its_network_and_data(tmp_path):
    (tmp_path / "model.safetensors").touch()
    config = {"method": "dns", "model": "lenet5", "data": "digits"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = find_source(tmp_path)
    assert found.model == "asterism.experiments.networks:lenet5"
    assert len(found.task(test=True).valid_loader[0][0]) > 100


def test_a_plain_checkpoint_needs_a_model(tmp_path):
    torch.save(small.trained().state_dict(), tmp_path / "net.pt")
    done = asterism("bench", tmp_path / "net.pt")
    assert done.returncode == 2
    assert "add --model net.py:model" in done.stderr
