"""Parts of source files, each a function with what it calls: an export takes what it needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


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
