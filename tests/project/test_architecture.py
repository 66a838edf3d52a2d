"""Imports point one way: from the command line down to the algebra."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import asterism

ROOT = Path(asterism.__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
    if path != ROOT / "__init__.py"  # imports nothing until it is asked to
}
ALGEBRA = ["penalties", "initialisers", "schedules", "masks", "metrics"]


def imports(path: Path) -> set[str]:
    """The modules of asterism that a file imports anywhere, without the package's name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            # `from asterism import inner` and `from asterism.scaling.inner_optimizer import reset` alike.
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    inside = {name.removeprefix("asterism.") for name in found if name.startswith("asterism.")}
    return inside & MODULES.keys()


def reach(module: str) -> set[str]:
    """All that a module imports, directly or through others."""
    seen: set[str] = set()
    ahead = imports(MODULES[module])
    while ahead:
        seen |= ahead
        ahead = set().union(*(imports(MODULES[name]) for name in ahead)) - seen
    return seen


def in_package(modules: set[str], package: str) -> set[str]:
    return {name for name in modules if name == package or name.startswith(f"{package}.")}


def test_the_imports_are_seen_at_all() -> None:
    assert {"inner", "pruning", "layer", "penalties"} <= imports(MODULES["scaling"])
    assert "masks" in reach("scaling") - imports(MODULES["scaling"])


@pytest.mark.parametrize("module", ALGEBRA)
def test_the_algebra_imports_nothing_of_ours_but_errors_and_names(module: str) -> None:
    assert imports(MODULES[module]) <= {"errors", "names"}


@pytest.mark.parametrize("module", ["layer", "qspace", "pruning", "inner", "targets"])
def test_the_parts_do_not_know_the_optimizer(module: str) -> None:
    assert "scaling" not in reach(module)


@pytest.mark.parametrize("above", ["methods", "training", "cli", "reproduce"])
def test_the_optimizer_knows_no_method_and_no_training(above: str) -> None:
    assert not in_package(reach("scaling"), above)


@pytest.mark.parametrize("above", ["training", "scaling", "methods"])
def test_a_report_never_trains(above: str) -> None:
    for module in in_package(set(MODULES), "report"):
        assert not in_package(reach(module), above)


def test_training_knows_no_method() -> None:
    assert not in_package(reach("training"), "methods")


def test_nobody_imports_the_command_line() -> None:
    importers = {name for name, path in MODULES.items() if in_package(imports(path), "cli")}
    assert {name for name in importers if not in_package({name}, "cli")} <= {"__main__"}


def test_no_module_imports_itself_through_others() -> None:
    assert [module for module in MODULES if module in reach(module)] == []


def test_the_package_starts_without_torch() -> None:
    program = "import sys, asterism; dir(asterism); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_every_public_name_resolves() -> None:
    for name in asterism.__all__:
        assert getattr(asterism, name).__name__ == name
    assert set(asterism.__all__) <= set(dir(asterism))
    with pytest.raises(AttributeError, match="no attribute 'nonesuch'"):
        _ = asterism.nonesuch
