"""Settings as plain JSON: what identifies a run, and what a reader needs to repeat it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from types import FunctionType
from typing import Any
from zlib import crc32


def describe(value: Any) -> Any:
    """Frozen dataclasses, mappings and sequences, down to numbers and strings.

    >>> from asterism.scaling.penalties import ReweightedL1
    >>> describe(ReweightedL1(tau=0.5))
    {'kind': 'ReweightedL1', 'tau': 0.5, 'relative': True}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            each.name: describe(getattr(value, each.name)) for each in dataclasses.fields(value)
        }
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {str(key): describe(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [describe(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, FunctionType):
        return _describe_function(value)
    return getattr(value, "__qualname__", _without_addresses(repr(value)))


def _describe_function(function: FunctionType) -> str:
    """Its name, and a checksum of what it does: two lambdas have the same name."""
    code = function.__code__
    captured = [describe(cell.cell_contents) for cell in function.__closure__ or ()]
    content = f"{code.co_code!r} {code.co_names} {code.co_consts} {captured}"
    return f"{function.__qualname__} {crc32(_without_addresses(content).encode()):08x}"


def _without_addresses(text: str) -> str:
    """An address would tell two runs of the same settings apart."""
    return re.sub(r" at 0x\w+", "", text)


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two descriptions differ, as dotted paths.

    one, other  what `describe` gave
    path        the place of both in a larger description

    >>> differences({"lr": 1, "penalty": {"tau": 2}}, {"lr": 1, "penalty": {"tau": 3}})
    ['penalty.tau']
    """
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        return [
            each
            for key in keys
            for each in differences(one.get(key), other.get(key), f"{path}.{key}" if path else key)
        ]
    return [] if one == other else [path]
