"""Rooms import one way: from the command line down to the errors.

`support/rooms.py` has their order.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import asterism
from support.rooms import (
    LEVEL,
    MODULES,
    ROOT,
    imports,
    is_allowed,
    modules_in,
    reach,
    room,
)

WITHOUT_TORCH = ("errors", "kernels", "file", "runtime")
MOST_ENTRIES = 16


def test_the_imports_are_seen_at_all() -> None:
    module = "scaling.sparse_optimizer"
    assert {"scaling.stepping.inner_optimizer", "pruning.masks"} <= imports(module)
    assert "pruning.scores" in reach(module) - imports(module)


@pytest.mark.parametrize(
    "code",
    [
        "import asterism.cli.progress",
        "from asterism.cli import progress",
        "def f():\n    from asterism.cli.progress import Bar",
        "importlib.import_module('asterism.cli.progress')",
        "name = f'asterism.cli.progress{suffix}'",
    ],
)
def test_an_import_up_the_order_would_be_seen(code: str) -> None:
    assert "cli.progress" in modules_in(ast.parse(code))
    assert not is_allowed("scaling", "cli")


@pytest.mark.parametrize(
    "code", ["from asterism import sparsify", "import asterism\nasterism.sparsify(model, task)"]
)
def test_an_import_of_a_public_name_would_be_seen(code: str) -> None:
    assert "search.sparsify" in modules_in(ast.parse(code))
    assert not is_allowed("scaling", "search")


@pytest.mark.parametrize("code", ["f'asterism.{room}.progress'", "from .cli import progress"])
def test_an_import_that_hides_where_it_goes_is_refused(code: str) -> None:
    with pytest.raises(AssertionError, match="hide"):
        modules_in(ast.parse(code))


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room(module) for module in MODULES} == set(LEVEL)
    named_by_python = {"__init__.py", "__main__.py", "__pycache__", "py.typed"}
    entries = {path.name for path in ROOT.iterdir()} - named_by_python
    assert len(entries) <= MOST_ENTRIES


@pytest.mark.parametrize("module", MODULES)
def test_rooms_import_one_way(module: str) -> None:
    wrong = {name for name in imports(module) if not is_allowed(room(module), room(name))}
    assert not wrong, f"{module} may not know {', '.join(sorted(wrong))}"


def test_no_module_imports_itself_through_others() -> None:
    assert [module for module in MODULES if module in reach(module)] == []


@pytest.mark.parametrize("name", sorted(set(LEVEL) - {"errors"}))
def test_a_room_has_neither_few_files_nor_many(name: str) -> None:
    """Folders inside of a room have their own files."""
    found = [path.name for path in (ROOT / name).iterdir() if path.is_file()]
    own = [each for each in found if not each.startswith("__") and not each.endswith(".so")]
    assert 4 <= len(own) <= 12, sorted(own)


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES.values()} - {ROOT}))
def test_a_room_says_what_it_is_for_and_lists_its_files(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    assert len(files) <= 12
    for name in files:
        assert re.search(rf"\b{name}\b", text), f"{folder.name}/__init__.py does not list {name}"


def test_the_room_of_kernels_lists_its_c_files() -> None:
    text = ast.get_docstring(ast.parse((ROOT / "kernels" / "__init__.py").read_text())) or ""
    for path in [*(ROOT / "kernels").rglob("*.c"), *(ROOT / "kernels").rglob("*.h")]:
        assert re.search(rf"\b{path.stem}\b", text), f"kernels/__init__.py does not list {path}"


@pytest.mark.parametrize("module", ["penalties", "initialisers", "schedules"])
def test_the_algebra_imports_nothing_of_ours_but_errors_and_names(module: str) -> None:
    assert imports(f"scaling.{module}") <= {"errors", "weights.names"}


@pytest.mark.parametrize("module", [name for name in MODULES if room(name) == "report"])
def test_a_report_never_trains(module: str) -> None:
    trainers = {"experiments.training", "experiments.methods", "scaling.sparse_optimizer"}
    assert not trainers & reach(module)


def test_training_knows_no_method() -> None:
    assert not {name for name in reach("experiments.training") if "methods" in name}


@pytest.mark.parametrize("module", [name for name in MODULES if room(name) in WITHOUT_TORCH])
def test_files_and_runtime_know_no_torch(module: str) -> None:
    assert not [name for name in {module, *reach(module)} if imports_torch(name)]


@cache
def imports_torch(module: str) -> bool:
    nodes = ast.walk(ast.parse(MODULES[module].read_text()))
    found = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return any(re.match(r"(import|from) torch\b", ast.unparse(node)) for node in found)


def test_what_takes_a_second_to_import_waits_until_it_is_needed() -> None:
    heavy = ("torch.distributed.tensor", "sklearn", "scipy", "matplotlib", "onnx", "onnxruntime")
    for module, path in MODULES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                assert not str(node.module).startswith(heavy), module
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith(heavy) for alias in node.names), module


def test_the_package_starts_without_torch() -> None:
    program = "import sys, asterism; dir(asterism); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_every_public_name_resolves() -> None:
    for name in asterism.__all__:
        assert getattr(asterism, name).__name__ == name
    assert set(asterism.__all__) <= set(dir(asterism))
    with pytest.raises(AttributeError, match="no attribute 'nonesuch'"):
        _ = asterism.nonesuch
