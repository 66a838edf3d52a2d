"""`asterism plan` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from asterism.cli import app
from asterism.errors import InputError
from asterism.export.checkpoints import write_checkpoint
from support import small
from support.paths import SMALL

FACTORIES = """
import torch

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))

def loaders():
    batches = [(torch.ones(3, 4), torch.tensor([0, 1, 1]))]
    return batches, batches

def number():
    return 3

def broken():
    raise ValueError("no such checkpoint")
"""


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = tmp_path / "factories.py"
    path.write_text(FACTORIES)
    return str(path)


def run(*args: str) -> str:
    result = CliRunner().invoke(app, ["plan", *args])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_a_model_alone() -> None:
    output = run("asterism.experiments.networks:lenet5", "--exclude", "conv1")
    assert "400,000" in output
    assert "left alone: excluded by name" in output


def test_data_adds_work_and_sensitivity(place: str) -> None:
    assert "at 0.05" not in run(f"{place}:model")
    assert "at 0.05" in run(f"{place}:model", "--data", f"{place}:loaders")
    found = json.loads(run(f"{place}:model", "--data", f"{place}:loaders", "--json"))
    first = found["parameters"][0]
    assert (first["name"], first["shape"], first["macs"]) == ("0.weight", [6, 4], 24)
    assert set(first["metrics"]) == {"0.5", "0.25", "0.1", "0.05"}
    assert found["suggestion"].keys() == {"densities", "exclude", "density", "why"}


def test_patterns_choose(place: str) -> None:
    found = json.loads(run(f"{place}:model", "--include", "2", "--json"))
    touched = [row["name"] for row in found["parameters"] if row["touched"]]
    assert touched == ["2.weight"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["asterism.experiments.networks"],
            "does not name a function: write file.py:function or pkg.module:function",
        ),
        (["{}:broken"], "raised ValueError: no such checkpoint"),
        (["{}:number"], "must return a torch.nn.Module, found int"),
        (["{}:model", "--data", "{}:number"], "must return .train_loader, valid_loader."),
        (["{}:model", "--include", "fc"], "no layer matches the pattern 'fc'"),
    ],
)
def test_what_goes_wrong_is_one_clear_line(place: str, args: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        run(*(each.format(place) for each in args))
    assert "\n" not in str(error.value)


def test_weights_are_loaded_before_anything_is_judged(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "dense.safetensors", small.trained().state_dict())
    options = [f"{SMALL}:untrained", "--data", f"{SMALL}:loaders"]
    found = json.loads(run(*options, "--weights", str(tmp_path / "dense.safetensors"), "--json"))
    assert found["metric"] == small.task().evaluate(small.trained())
    assert found["doubt"] == ""


def test_an_untrained_network_gets_a_question_and_no_advice() -> None:
    for data in ([], ["--data", f"{SMALL}:loaders"]):
        output = run(f"{SMALL}:untrained", *data)
        assert "is the model trained?" in output
        assert "to start with" not in output
    assert "to start with" in run(f"{SMALL}:trained", "--data", f"{SMALL}:loaders")
