"""Models and data by the name of the function that makes them: `pkg.module:name` or `file.py:name`.

Owns finding and calling it, and one line for what is wrong: no such file or module, no such
function, an error inside it, or something else than expected in return.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from torch import nn

from asterism.errors import InputError, one_line

MOVED = {
    "asterism.models": "asterism.experiments.networks",
    "asterism.experiments.lenets": "asterism.experiments.networks",
}
"""Modules of ours that factories were once named after, and where they are now."""


def find(spec: str) -> Callable[..., Any]:
    """The function that a spec names.

    >>> find("asterism.experiments.networks:lenet5").__name__
    'lenet5'
    >>> find("asterism.models:lenet5").__name__  # as it was once called
    'lenet5'
    """
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise InputError(_without_a_name(spec))
    module = _load_file(Path(place)) if place.endswith(".py") else _import(MOVED.get(place, place))
    found = getattr(module, name, None)
    if found is None:
        names = ", ".join(_functions(module)) or "no functions"
        raise InputError(f"{place} has no {name}; it has {names}")
    if not callable(found):
        raise InputError(f"{spec} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def _without_a_name(spec: str) -> str:
    """What to write where a function is not named, with those that the file has."""
    place = spec.strip(":")
    advice = f"{spec!r} does not name a function: write file.py:function or pkg.module:function"
    if not place.endswith(".py") or not Path(place).is_file():
        return advice
    names = _functions(_load_file(Path(place)))
    return f"{advice}, here {', '.join(f'{place}:{name}' for name in names)}" if names else advice


def _functions(module: Any) -> list[str]:
    """The public functions that a module defines itself; all that it has, where it defines none."""
    known = {name: each for name, each in vars(module).items() if callable(each) and name[0] != "_"}
    own = [name for name, each in known.items() if each.__module__ == module.__name__]
    return own or list(known)


def call(spec: str) -> Any:
    """What the function gives."""
    function = find(spec)
    try:
        return function()
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{spec} raised {one_line(error)}") from error


def make_model(spec: str) -> nn.Module:
    """A module from its factory; weights are the factory's own matter.

    >>> type(make_model("asterism.experiments.networks:lenet5")).__name__
    'LeNet5'
    """
    model = call(spec)
    if not isinstance(model, nn.Module):
        raise InputError(f"{spec} must return a torch.nn.Module, found {type(model).__name__}")
    return model


def make_data(spec: str) -> dict[str, Any]:
    """The arguments of `supervised`, from a factory that returns a pair of loaders or a dict.

    The dict has train_loader and valid_loader, and if it likes loss, metric, higher_is_better and
    clip_norm.
    """
    data = call(spec)
    if isinstance(data, Mapping):
        return _check_keys(spec, dict(data))
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError(
            f"{spec} must return (train_loader, valid_loader) or a dict,"
            f" found {type(data).__name__}"
        )
    return _check_keys(spec, {"train_loader": data[0], "valid_loader": data[1]})


LOADERS = ("train_loader", "valid_loader")
OPTIONS = ("loss", "metric", "higher_is_better", "clip_norm", "amp")


def _check_keys(spec: str, data: dict[str, Any]) -> dict[str, Any]:
    for key in data:
        if key not in LOADERS + OPTIONS:
            known = ", ".join(LOADERS + OPTIONS)
            raise InputError(f"{spec} returns a dict with the key {key!r}; the keys are {known}")
    for key in LOADERS:
        if not isinstance(data.get(key), Iterable):
            raise InputError(f"{spec} must return a {key} that can be iterated over")
    return data


def _import(name: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise InputError(f"no module is called {name}: is it installed, or here?") from error
        raise InputError(f"importing {name} raised {one_line(error)}") from error
    except Exception as error:
        raise InputError(f"importing {name} raised {one_line(error)}") from error


def _load_file(path: Path) -> Any:
    """The file as a module, run once however many of its functions are asked for."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    name = f"asterism_factory_{path.stem}_{crc32(str(path.resolve()).encode()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles inside look themselves up
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"running {path} raised {one_line(error)}") from error
    finally:
        sys.path.remove(str(path.parent.resolve()))
    return module
