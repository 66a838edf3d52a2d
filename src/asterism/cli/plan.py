"""`asterism plan`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from asterism.errors import InputError


def plan(
    model: Annotated[
        str, typer.Argument(help="pkg.module:function or path/file.py:function; gives the model.")
    ],
    data: Annotated[
        str | None,
        typer.Option(
            help="Another such function. It gives evaluate(model) -> float, or example inputs, or"
            " an object with either as `evaluate` and `example_inputs`."
        ),
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="Only weights that fit this pattern; may be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="No weights that fit this pattern; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Dry run: what would be made sparse, what not and why, and how sensitive each layer is.

    Example:  asterism plan asterism.models:lenet5 --exclude conv1
    """
    import json

    from torch import nn

    from asterism.plan import plan as make_plan

    network = call_factory(model)
    if not isinstance(network, nn.Module):
        raise InputError(f"{model} gave a {type(network).__name__}, not a torch.nn.Module")
    evaluate, inputs = unpack(call_factory(data), data) if data else (None, None)
    found = make_plan(network, evaluate, inputs, include=include or None, exclude=exclude or None)
    print(json.dumps(found.to_json(), indent=2) if as_json else found)


def unpack(given: Any, spec: str) -> tuple[Callable[[Any], float] | None, Any]:
    """(evaluate, example inputs) of what a data factory gave."""
    from torch import Tensor

    if isinstance(given, Tensor | tuple | list | Mapping):
        return None, given
    evaluate, inputs = getattr(given, "evaluate", None), getattr(given, "example_inputs", None)
    if evaluate is None and inputs is None and callable(given):
        evaluate = given
    if evaluate is None and inputs is None:
        raise InputError(f"{spec} gave a {type(given).__name__} with no evaluate or example_inputs")
    return evaluate, inputs


def call_factory(spec: str) -> Any:
    """What the function that a spec names returns."""
    factory = load_factory(spec)
    try:
        return factory()
    except Exception as error:
        raise InputError(f"{spec} raised {type(error).__name__}: {error}") from error


def load_factory(spec: str) -> Callable[[], Any]:
    """The function `pkg.module:function` or `path/file.py:function`."""
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise InputError(f"expected pkg.module:function or path/file.py:function, got {spec!r}")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"cannot import {place}: {type(error).__name__}: {error}") from error
    factory = getattr(module, name, None)
    if not callable(factory):
        raise InputError(f"{place} has no function {name!r}")
    return factory  # type: ignore[no-any-return]


def _load_module(name: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def _load_file(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
