"""Whoever changes what crosses the border between Python and C raises its number.

A library that was compiled before such a change would be called with other arguments than it has.
"""

import inspect
import re
import zlib
from pathlib import Path

import asterism.kernels.library as library

SOURCES = Path(library.__file__).parent
# The border as it is since the interface has this number.
NUMBER, DIGEST = 20, 502203194


def prototypes() -> list[str]:
    """Of each C function that Python calls."""
    declared = inspect.getsource(library._declare)
    names = set(re.findall(r"asterism_(\w+)\.argtypes", declared))
    names |= {f"{name}_{way}" for name in ("conv", "winograd") for way in ("forward", "backward")}
    text = "\n".join(path.read_text() for path in sorted(SOURCES.rglob("*.c")))
    found = {
        name: re.search(rf"^\w[^\n]*asterism_{name}\([^)]*\)\n{{", text, re.M) for name in names
    }
    assert [name for name, match in found.items() if match is None] == []
    return [" ".join(match.group().split()) for _, match in sorted(found.items()) if match]


def steps() -> str:
    """The structs and numbers that a program is made of, without comments."""
    text = re.sub(
        r"/\*.*?\*/|enum { INTERFACE = \d+ };", "", (SOURCES / "program.h").read_text(), flags=re.S
    )
    return " ".join(text.split())


def test_the_interface_has_another_number_when_it_changes() -> None:
    digest = zlib.crc32("\n".join([*prototypes(), steps()]).encode())
    assert (library.INTERFACE, digest) == (NUMBER, DIGEST), (
        "raise INTERFACE in program.h and library.py, and write both numbers here"
    )
