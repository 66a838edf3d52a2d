"""Every public name says what it is, and what each of its arguments is for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import asterism
from asterism import runtime
from support.paths import ROOT

FEW = 2
"""A name with more arguments than these lists them."""


def public() -> Iterator[tuple[str, Any]]:
    """All names of the package, and the public methods and properties of its classes."""
    names = {name: getattr(asterism, name) for name in asterism.__all__}
    names |= {f"runtime.{name}": getattr(runtime, name) for name in runtime.__all__}
    for name, found in names.items():
        yield name, found
        for attribute, value in vars(found).items() if inspect.isclass(found) else ():
            value = getattr(value, "__func__", value)
            described = inspect.isroutine(value) or isinstance(value, property)
            if described and not attribute.startswith("_"):
                yield f"{name}.{attribute}", value


PUBLIC = dict(public())


def arguments(found: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(found).parameters.values()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.name != "self" and each.kind not in kinds]


def test_methods_and_properties_are_seen_at_all() -> None:
    expected = {"AffineScaling", "SparseOptimizer.prune", "Focuss.plain_in_q", "sparsify"}
    assert expected | {"runtime.Net", "runtime.Net.explain"} <= PUBLIC.keys()


def listed(text: str) -> set[str]:
    """The names at the beginning of lines such as `include, exclude  glob patterns`."""
    lines = re.findall(r"^ *(\w+(?:, \w+)*) {2,}\S", text, re.MULTILINE)
    return {name for line in lines for name in line.split(", ")}


def test_a_name_in_prose_or_in_an_example_is_not_listed() -> None:
    text = "Trains `model`.\n\n    f(optimizer, lr)\n\n    lr, momentum  of the steps\n"
    assert listed(text) == {"lr", "momentum"}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(PUBLIC[name]), f"{name} has no docstring"


@pytest.mark.parametrize("name", PUBLIC)
def test_more_than_two_arguments_are_all_explained(name: str) -> None:
    found = PUBLIC[name]
    takes_any = inspect.isclass(found) and issubclass(found, Exception)
    if not isinstance(found, property) and not takes_any and len(arguments(found)) > FEW:
        missing = set(arguments(found)) - listed(inspect.getdoc(found) or "")
        assert not missing, f"{name} does not list {', '.join(sorted(missing))}"


ODD = re.compile(
    r"\b(says so|say so|goes on|go on with|Whose |Who wants|of yours|so many|mend)\b",
)
"""Turns of phrase that a reader has to decipher."""


@pytest.mark.parametrize("folder", ["README.md", "docs", "src", "examples"])
def test_prose_is_plain(folder: str) -> None:
    place = ROOT / folder
    files = [place] if place.is_file() else [*place.rglob("*.md"), *place.rglob("*.py")]
    files += place.rglob("*.ipynb")
    odd = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in files
        for line in path.read_text(encoding="utf-8").splitlines()
        if ODD.search(line)
    ]
    assert not odd, "\n".join(odd)
