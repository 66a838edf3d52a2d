"""The rooms of the package: their order, and who imports whom.

A room may use the rooms of earlier lines and its own files, and no others; rooms on one line do
not know each other.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import asterism

ROOT = Path(asterism.__file__).parent
ORDER = (
    ("errors",),
    ("storage", "weights", "kernels"),
    ("graph", "file", "pruning"),
    ("scaling", "runtime"),
    ("export", "integrations"),
    ("search", "experiments"),
    ("report",),
    ("cli",),
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
    if path.parent != ROOT or not path.stem.startswith("__")  # doors, not rooms
}


def modules_in(tree: ast.AST) -> set[str]:
    """All that looks like a module of ours: imports anywhere, and strings that name one.

    A public name (`from asterism import sparsify`) counts as the module that it is in.
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide where a name comes from"
            # `from asterism.scaling import layer` and `from asterism.scaling.layer import Layer`.
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert node.value != "asterism.", "a computed name hides what is imported"
            found |= set(re.findall(r"^asterism[.\w]*\w", node.value))  # not inside of prose
    names = {name.removeprefix("asterism.") for name in found if name.startswith("asterism.")}
    return {asterism._HOME.get(name, name) for name in names}


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of asterism that one of them imports anywhere, without the package's name."""
    return frozenset(modules_in(ast.parse(MODULES[module].read_text())) & MODULES.keys())


@cache
def reach(module: str) -> frozenset[str]:
    """All that a module imports, directly or through others."""
    seen: set[str] = set()
    ahead = set(imports(module))
    while ahead:
        seen |= ahead
        ahead = set().union(*(imports(name) for name in ahead)) - seen
    return frozenset(seen)


def room(module: str) -> str:
    return module.partition(".")[0]


def is_allowed(importer: str, imported: str) -> bool:
    return importer == imported or LEVEL[imported] < LEVEL[importer]
