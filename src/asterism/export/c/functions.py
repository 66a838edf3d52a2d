"""The functions that an exported file may need: parts of functions/*.c, each with what it calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

FILES = ("reading", "layers", "values", "activations")


@cache
def functions() -> Mapping[str, str]:
    """The text of each function by its name, in an order in which C may read them."""
    folder = files("asterism.export.c").joinpath("functions")
    texts = [folder.joinpath(f"{name}.c").read_text(encoding="utf-8") for name in FILES]
    return parts("\n".join(texts))


def parts(text: str) -> dict[str, str]:
    """What follows each line `/* ---- name */`, up to the next."""
    found = re.split(r"^/\* ---- (\w+) \*/\n", text, flags=re.MULTILINE)[1:]
    bodies = [re.sub(r"\n/\* [^\n]* \*/\s*\Z", "\n", body).strip() for body in found[1::2]]
    return dict(zip(found[::2], bodies, strict=True))


def needed(names: Iterable[str], known: Mapping[str, str]) -> list[str]:
    """These functions and all that they call, in the order in which they are known."""
    seen: set[str] = set()
    ahead = set(names)
    while ahead:
        seen |= ahead
        called = {name for each in ahead for name in re.findall(r"\b(\w+)\(", known[each])}
        ahead = (called & known.keys()) - seen
    return [name for name in known if name in seen]
