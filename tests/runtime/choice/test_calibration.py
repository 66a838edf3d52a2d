"""What is known of a machine, and what happens where it is not to be had."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import asterism.kernels.library as library
import asterism.runtime.choice.calibration as calibration
import asterism.runtime.choice.cost as cost
import asterism.runtime.choice.machine as machine
from asterism.errors import InputError
from asterism.graph.network import Graph, Node
from asterism.runtime import Net

pytestmark = pytest.mark.skipif(library.load() is None, reason="the kernels are not built")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and nothing known yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ASTERISM_CALIBRATION")
    monkeypatch.setattr(machine, "measured", {})
    machine._read.cache_clear()
    return tmp_path / "asterism"


def kept(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def forget() -> None:
    machine.measured.clear()
    machine._read.cache_clear()


def test_every_kind_is_measured_and_kept(folder: Path) -> None:
    assert not calibration.is_calibrated()
    factors = calibration.calibrate()
    kinds = set(cost.KINDS)
    level = library.choose_level(library.load())
    # The portable kernels have none by rows.
    assert set(factors) == kinds - ({"conv rows"} if level == 0 else set())
    assert all(machine.LEAST <= factor <= machine.MOST for factor in factors.values())
    forget()
    assert calibration.is_calibrated()
    assert machine.machine(level).factors == factors


def test_the_planner_heeds_it(folder: Path) -> None:
    weight = np.random.default_rng(0).random((64, 64), np.float32)
    graph = Graph((64,), (Node("linear", (0,), (0,)),))
    level = library.choose_level(library.load())
    for slow, other in (("sparse", "dense"), ("dense", "sparse")):
        factors = {f"image {slow}": machine.MOST, f"image {other}": machine.LEAST}
        machine.measured[level] = factors
        choice = Net(graph, {"weight": weight}).plans[0].choices[0]
        assert choice.kernel == other
        assert choice.seconds < choice.otherwise


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"nonsense",
        b"\xff\xfe",
        b'{"factors": 3}',
        b'{"processor": "another", "factors": {"conv planes": 2}}',
        b'{"processor": "PROCESSOR", "factors": {"conv planes": 1e9}}',
        b'{"processor": "PROCESSOR", "factors": {"conv planes": NaN}}',
        b'{"processor": "PROCESSOR", "factors": {"conv planes": "much"}}',
    ],
)
def test_a_damaged_file_is_as_good_as_none(folder: Path, content: bytes) -> None:
    level = library.choose_level(library.load())
    folder.mkdir()
    own = json.dumps(machine.processor())[1:-1].encode()
    machine._path(level).write_bytes(content.replace(b"PROCESSOR", own))
    assert machine.machine(level) == cost.Machine()
    assert not calibration.is_calibrated()


def test_it_can_be_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    level = library.choose_level(library.load())
    machine.measured[level] = {"conv planes": 2.0}
    monkeypatch.setenv("ASTERISM_CALIBRATION", "none")
    assert machine.machine(level) == cost.Machine()
    assert calibration.is_calibrated()  # nobody has to do it


def test_a_folder_that_cannot_be_written_is_said_and_the_process_knows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_text("in the way")
    monkeypatch.setattr(calibration, "_trials", lambda: list(_few()))
    with pytest.raises(InputError, match="cannot write"):
        calibration.calibrate()
    assert calibration.is_calibrated()


def _few() -> list[calibration.Trial]:
    return [calibration.Trial("image dense", Node("linear", (0,), (0,)), (8, 8), (8,), 1.0)]


def test_a_network_that_is_loaded_measures_nothing(folder: Path) -> None:
    script = (
        "import numpy as np; from asterism.graph.network import Graph, Node\n"
        "from asterism.runtime import Net\nfrom asterism.runtime.choice import calibration\n"
        "calibration.calibrate = calibration._measure = None\n"
        "net = Net(Graph((4,), (Node('linear', (0,), (0,)),)), {'w': np.ones((3, 4), 'f4')})\n"
        "print(net(np.ones((1, 4), 'f4')))"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder.parent)}
    made = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True)
    assert made.stdout == b"[[4. 4. 4.]]\n"
    assert not folder.exists()
