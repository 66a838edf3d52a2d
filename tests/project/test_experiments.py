"""What is committed under experiments/ can still be read, compared and run."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import pkgutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import asterism.experiments
import asterism.scaling
from asterism.experiments.budgets import find as budget
from asterism.experiments.networks import MODELS
from asterism.graph.rebuild import rebuild
from asterism.runtime import load
from asterism.storage.config import describe, differences
from support.paths import ROOT

EXPERIMENTS = ROOT / "experiments"
FILES = sorted(EXPERIMENTS.rglob("*.asterism"))
RECORDED = [path for path in FILES if path.with_suffix(".json").exists()]
SCRIPTS = sorted(EXPERIMENTS.rglob("*.py"))
RUNS = [
    (path.parent.name, record)
    for path in sorted(EXPERIMENTS.rglob("results.json"))
    for record in json.loads(path.read_text())
]


def kinds_in(package: Any) -> dict[str, type]:
    """The dataclasses that a package defines anywhere, by the name that a config has for them."""
    modules = [
        importlib.import_module(each.name)
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    classes = [each for module in modules for each in vars(module).values()]
    found = [each for each in classes if inspect.isclass(each) and dataclasses.is_dataclass(each)]
    return {each.__name__: each for each in found}


KINDS = kinds_in(asterism.scaling) | kinds_in(asterism.experiments)


def build(description: Any) -> Any:
    """From the description of a setting to the setting: the way back of `describe`."""
    if not isinstance(description, dict):
        return description
    values = {name: build(value) for name, value in description.items() if name != "kind"}
    return KINDS[description["kind"]](**values) if "kind" in description else values


def stated(full: Any, part: Any) -> Any:
    """`full` without what `part` does not mention: settings that came later have their defaults."""
    if not isinstance(part, dict):
        return full
    return {name: stated(full[name], part[name]) for name in part}


def name_of(value: Any) -> str:
    return value if isinstance(value, str) else f"{value['method']}-{value['seed']}"


def test_there_is_something_to_check() -> None:
    assert len(RUNS) > 100
    assert len(FILES) >= 10
    assert len(SCRIPTS) >= 4


@pytest.mark.parametrize(("folder", "record"), RUNS, ids=name_of)
def test_a_config_is_one_of_today_s_settings(folder: str, record: dict[str, Any]) -> None:
    config = record["config"]
    assert config["model"] in MODELS
    assert (config["method"], config["seed"]) == (record["method"], record["seed"])
    method = build(config["settings"])
    assert stated(describe(method), config["settings"]) == config["settings"]
    assert method.phases


@pytest.mark.parametrize(("folder", "record"), RUNS, ids=name_of)
def test_a_budget_still_says_what_was_run(folder: str, record: dict[str, Any]) -> None:
    config = record["config"]
    chosen = budget(folder)
    today = describe(chosen.methods[record["method"]])
    assert differences(stated(today, config["settings"]), config["settings"]) == []
    assert chosen.model == config["model"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_file_answers_as_the_network_that_it_holds(path: Path) -> None:
    net = load(path)
    images = np.random.default_rng(0).random((5, *net.input_shape), np.float32)
    with torch.no_grad():
        expected = rebuild(net.graph, net.weights)(torch.from_numpy(images)).numpy()
    np.testing.assert_allclose(net(images), expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_file_is_the_one_that_its_record_is_about(path: Path) -> None:
    record, net = json.loads(path.with_suffix(".json").read_text()), load(path)
    assert record["file"] == path.name
    assert record["bytes"] == path.stat().st_size
    kept = sum(np.count_nonzero(array) for array in net.weights if array.ndim > 1)
    assert kept == record["nonzeros"]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_script_compiles_and_what_it_imports_is_there(path: Path) -> None:
    compile(source := path.read_text(), str(path), "exec")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"
