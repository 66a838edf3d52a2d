"""The functions that an exported C file may need: functions/*.c."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from asterism.export.functions import parts

FILES = ("reading", "layers", "values", "activations", "int8")


@cache
def functions() -> Mapping[str, str]:
    """The text of each function by its name, in an order in which C may read them."""
    folder = files("asterism.export.c").joinpath("functions")
    texts = [folder.joinpath(f"{name}.c").read_text(encoding="utf-8") for name in FILES]
    return parts("\n".join(texts))
