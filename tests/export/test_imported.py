"""A network from an ONNX file: saved small, run, and all of that without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import asterism
from asterism import file, runtime
from asterism.export.onnx import onnx_bytes
from support.networks import make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    model, shape = make("mlp")
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_bytes(model, torch.zeros(2, *shape)))
    return path


def test_a_saved_network_answers_as_the_one_that_was_read(path: Path, tmp_path: Path) -> None:
    network, x = asterism.from_onnx(path), np.random.default_rng(0).standard_normal((5, 50))
    size = network.save(tmp_path / "net.asterism")
    assert size == (tmp_path / "net.asterism").stat().st_size < path.stat().st_size / 2
    saved = runtime.load(tmp_path / "net.asterism")
    np.testing.assert_array_equal(saved(x.astype("f4")), network.net(threads=2)(x.astype("f4")))


def test_few_bits_are_few_values(path: Path, tmp_path: Path) -> None:
    network = asterism.from_onnx(path)
    assert network.save(tmp_path / "few.asterism", bits=2) < network.save(tmp_path / "net.asterism")
    for array in file.read(tmp_path / "few.asterism").tensors.values():
        assert array.ndim < 2 or len(np.unique(array)) <= 5  # and zero
    assert network.contents(bits=2).tensors.keys() == network.tensors.keys()


def test_minus_zero_becomes_zero(path: Path) -> None:
    import onnx
    from onnx import numpy_helper

    found = onnx.load(path)
    weight = found.graph.initializer[0]
    array = numpy_helper.to_array(weight).copy()
    array[0] = -0.0
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    path.write_bytes(found.SerializeToString())
    for each in asterism.from_onnx(path).tensors.values():
        assert not np.signbit(each[each == 0]).any()


def test_it_tells_what_it_is(path: Path) -> None:
    assert f"Imported({path}: 8 layers" in repr(asterism.from_onnx(path))


PROGRAM = """
import sys
sys.modules["torch"] = None  # as where it is not installed
import asterism
from asterism.cli import main
network = asterism.from_onnx("model.onnx")
network.net()
for line in (["compress", "model.onnx"], ["inspect", "model.onnx"]):
    sys.argv = ["asterism", *line]
    try:
        main()
    except SystemExit as done:
        assert not done.code, line
"""


def test_torch_is_not_needed(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "model.asterism" in done.stdout
    assert "PyTorch" not in done.stderr
