"""ONNX files on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from asterism import runtime
from asterism.cli.onnx_options import read_fixed, read_shapes
from asterism.errors import InputError
from asterism.export.onnx import onnx_bytes
from support import small
from support.command_line import asterism, process
from support.onnx_models import BATCH, model, node, write
from support.paths import SMALL


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_bytes(small.trained().eval(), torch.zeros(2, 20)))
    return path


def test_a_file_is_compressed_inspected_and_measured(classifier: Path) -> None:
    done = asterism("compress", classifier)
    assert done.returncode == 0, done.stderr
    ours = classifier.with_suffix(".asterism")
    assert f"{ours}: {ours.stat().st_size:,} bytes" in done.stdout
    layers = json.loads(asterism("inspect", classifier, "--json").stdout)["layers"]
    assert len(layers) == len([w for w in small.trained().state_dict().values() if w.ndim > 1])
    measured = asterism("evaluate", classifier, "--data", f"{SMALL}:loaders", "--json")
    assert json.loads(measured.stdout)["metric"] == small.task().evaluate(small.trained())


def test_bench_times_it(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asterism.export.dense_engines as engines

    monkeypatch.setattr(engines, "find", lambda *_: {})
    done = asterism("bench", classifier, "--batch", "1", "--seconds", "0.1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["engine"] == "asterism"


def test_open_sizes_and_numbers_are_given(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "rate"], ["a"]), node("Add", ["a", "z"])]
    found = model(nodes, {"x": [BATCH, 3, "n"], "rate": [], "z": [BATCH, 3, "n"]})
    path = write(found, tmp_path)
    done = asterism("compress", path)
    assert done.returncode == 2
    assert "--shape 3,224" in done.stderr
    assert done.stderr.count("\n") == 1
    sizes = ["--shape", "x=3,5", "--shape", "z=3,5"]
    done = asterism("compress", path, *sizes, "--fix", "rate=0.5", "--json")
    assert done.returncode == 0, done.stderr
    x = np.ones((2, 3, 5), np.float32)
    np.testing.assert_array_equal(runtime.load(tmp_path / "model.asterism")(x, x), 1.5 * x)


def test_what_is_missing_is_a_warning_of_one_line(tmp_path: Path) -> None:
    path = write(model([node("Asinh", ["x"])], {"x": [BATCH, 2]}), tmp_path)
    done = process("compress", path)
    assert done.returncode == 0
    warning = "the file is written, but cannot be run: the runtime has no operation onnx.Asinh"
    assert done.stderr == f"asterism: warning: {warning}\n"
    done = asterism("evaluate", path, "--data", f"{SMALL}:loaders")
    assert done.returncode == 2
    assert "onnx.Asinh" in done.stderr


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--shape", "3,x"], "--shape takes numbers"),
        (["--shape", "3", "--shape", "4"], "a name for each"),
        (["--fix", "sr"], "--fix takes a name and a number"),
        (["--max-drop", "1"], "its own network"),
        (["--model", "net.py:model"], "its own network"),
        (["--out", "net.safetensors"], "becomes an .asterism file"),
    ],
)
def test_options_that_do_not_fit(options: list[str], match: str, classifier: Path) -> None:
    done = asterism("compress", classifier, *options)
    assert done.returncode == 2
    assert match in done.stderr


def test_without_options_nothing_is_given() -> None:
    assert (read_shapes(None), read_fixed(None)) == (None, {})
    with pytest.raises(InputError, match="not 'a=b'"):
        read_fixed(["a=b"])
