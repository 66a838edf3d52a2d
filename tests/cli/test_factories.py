"""Functions by their name, and one clear line for each way that this can go wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from asterism.cli.factories import find, make_data, make_model
from asterism.errors import InputError

SOURCE = """
from dataclasses import dataclass
from torch import nn
import beside

@dataclass
class Settings:
    width: int = 3

number = 3
def model(): return nn.Linear(Settings().width, beside.WIDTH)
def loaders(): return [1], [2]
def full(): return {"train_loader": [1], "valid_loader": [2], "higher_is_better": False}
def strange(): return {"train_loader": [1], "valid_loader": [2], "los": None}
def half(): return {"train_loader": [1]}
def fails(): raise KeyError("weights")
def explains(): raise RuntimeError("it\\n  has\\n\\treasons")
def nothing(): return None
"""


@pytest.mark.parametrize("name", ["lenet5", "lenet300"])
def test_networks_are_found_under_the_name_they_once_had(name: str) -> None:
    rooms = ("models", "experiments.lenets", "experiments.networks")
    assert len({type(make_model(f"asterism.{room}:{name}")) for room in rooms}) == 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("WIDTH = 2\n")
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    return path


def test_a_file_and_a_module(file):
    model = make_model(f"{file}:model")
    assert isinstance(model, nn.Linear)
    assert model.weight.shape == (2, 3)
    assert isinstance(make_model("asterism.experiments.networks:lenet300"), nn.Module)


def test_data_is_a_pair_or_a_dict(file):
    assert make_data(f"{file}:loaders") == {"train_loader": [1], "valid_loader": [2]}
    assert make_data(f"{file}:full")["higher_is_better"] is False


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("net", "'net' does not name a function: write file.py:function or pkg.mod"),
        (":model", "does not name a function"),
        ("nowhere/net.py:model", "there is no file nowhere/net.py"),
        ("asterism.nowhere:model", "no module is called asterism.nowhere"),
        ("FILE:modle", "has no modle; it has .*model"),
        ("FILE:number", "is a int, not a function"),
        ("FILE:fails", "raised KeyError: 'weights'"),
        ("FILE:explains", "raised RuntimeError: it has reasons$"),
        ("FILE:nothing", "must return a torch.nn.Module, found NoneType"),
    ],
)
def test_a_wrong_model_factory_is_one_line(spec, message, file):
    with pytest.raises(InputError, match=message) as error:
        make_model(spec.replace("FILE", str(file)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "must return .train_loader, valid_loader. or a dict, found NoneType"),
        ("strange", "a dict with the key 'los'; the keys are train_loader"),
        ("half", "must return a valid_loader that can be iterated over"),
    ],
)
def test_wrong_data_is_one_line(name, message, file):
    with pytest.raises(InputError, match=message):
        make_data(f"{file}:{name}")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nonesuch", "running .* raised ModuleNotFoundError"),
        ("def (", "running .* raised SyntaxError"),
    ],
)
def test_a_file_that_cannot_run_is_one_line(source, message, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(source)
    with pytest.raises(InputError, match=message):
        find(f"{path}:model")


def test_a_file_is_run_once_for_all_its_functions(tmp_path):
    path, runs = tmp_path / "net.py", tmp_path / "runs"
    path.write_text(f"with open({str(runs)!r}, 'a') as file: file.write('x')\n" + SOURCE)
    (tmp_path / "beside.py").write_text("WIDTH = 2\n")
    make_model(f"{path}:model")
    make_data(f"{path}:loaders")
    assert runs.read_text() == "x"


def test_files_of_the_same_name_are_not_mixed_up(tmp_path):
    for width, folder in enumerate(["one", "other"], start=1):
        (tmp_path / folder).mkdir()
        source = f"from torch import nn\ndef model(): return nn.Linear(3, {width})\n"
        (tmp_path / folder / "net.py").write_text(source)
    sizes = [len(make_model(f"{tmp_path}/{each}/net.py:model").weight) for each in ("one", "other")]
    assert sizes == [1, 2]


def test_a_file_that_failed_is_run_anew_once_it_is_mended(tmp_path):
    path = tmp_path / "mended.py"
    path.write_text("1 / 0")
    with pytest.raises(InputError, match="raised ZeroDivisionError"):
        find(f"{path}:model")
    path.write_text("def model(): return 1\n")
    assert find(f"{path}:model")() == 1


def test_a_file_without_a_function_lists_those_that_it_has(file):
    with pytest.raises(InputError) as caught:
        find(str(file))
    assert f"{file}:model" in str(caught.value)
    assert "nn" not in str(caught.value).split(":")
