"""The examples in the docstrings run as printed."""

import doctest
import importlib
import pkgutil

import pytest

import asterism

MODULES = [
    module.name
    for module in pkgutil.walk_packages(asterism.__path__, "asterism.")
    if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = {
        test.name for test in finder.find(importlib.import_module("asterism.scaling.penalties"))
    }
    for penalty in ("ReweightedL1", "ReweightedL2", "Focuss", "HardThreshold", "Concave"):
        assert f"asterism.scaling.penalties.{penalty}" in found
