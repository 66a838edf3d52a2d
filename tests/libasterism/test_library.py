"""libasterism answers as the Python runtime does, and refuses what is not right, without harm."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from asterism import file
from asterism.graph.network import Graph, Input, Node, encode
from asterism.runtime import Net, load
from support.c_library import OK, SANITIZED, SOURCES, Answer, build, expected, has_cmake, run
from support.compiled_c import needs_compiler
from support.exported import assert_close
from support.operations import CASES
from support.paths import ROOT
from support.random_graphs import random_network

RECORD = ROOT / "experiments/file/lenet5-front@1540-0.asterism"
DAMAGED, UNSUPPORTED = 2, 3

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    quick = ("-g0", "-O0", *SANITIZED[2:])  # to compile
    return build(tmp_path_factory.mktemp("library"), quick)


def saved(graph: Graph, weights: list[np.ndarray], **rest) -> bytes:
    tensors = {f"w{place}": weight for place, weight in enumerate(weights)}
    return file.encode(tensors, graph=encode(graph), **rest)


def answers(program: Path, networks: list[bytes], folder: Path) -> list[Answer]:
    found, ended = run(program, networks, folder)
    assert not ended, ended[:4000]
    assert len(found) == len(networks)
    return found


def test_it_answers_as_the_runtime_does(program: Path, tmp_path: Path) -> None:
    made = [(case.graph, case.weights) for case in (param.values[0] for param in CASES)]
    names = [param.id for param in CASES] + [f"random {seed}" for seed in range(200)]
    made += [random_network(seed) for seed in range(200)]
    modes = ["small" if place % 2 else "fast" for place in range(len(made))]
    each = zip(made, modes, strict=True)
    found = answers(program, [saved(*one, mode=mode) for one, mode in each], tmp_path)
    for name, answer, (graph, weights) in zip(names, found, made, strict=True):
        assert answer.status == OK, f"{name}: {answer.message}"
        net = Net(graph, {str(place): weight for place, weight in enumerate(weights)})
        for mine, truth in zip(answer.outputs, expected(net), strict=True):
            # Some of these amplify rounding: there the runtime is as far from exact numbers.
            assert_close(mine[None], truth[None], name, tolerance=3e-5)


def test_it_reads_every_precision_and_both_modes(program: Path, tmp_path: Path) -> None:
    random, graph = np.random.default_rng(0), Graph((30,), (Node("linear", (0,), (0, 1)),))
    kept = random.random((20, 30)) < 0.2
    networks, nets = [], []
    types = ("f4", "f2", "f8", "i8", "i4", "i2", "i1", "u1", "u2", "u4", "u8", "bfloat16")
    for dtype in types:
        whole = dtype[0] in "iu"
        weight = random.integers(0 if dtype[0] == "u" else -100, 100, kept.shape) if whole else (
            random.standard_normal(kept.shape)
        )  # fmt: skip
        weight = (weight * kept).astype("f4" if dtype == "bfloat16" else dtype)
        rest = {}
        if dtype == "bfloat16":
            rest = {"dtypes": {"w0": "bfloat16"}}
            held = (weight.view("<u4") >> 16).astype("<u2")
            weight = (held.astype("<u4") << 16).view("<f4")
        for mode in ("small", "fast"):
            bias = np.full(20, 0.5, np.float32)
            stored = held if rest else weight
            networks.append(
                file.encode({"w0": stored, "w1": bias}, graph=encode(graph), mode=mode, **rest)
            )
            nets.append(Net(graph, {"w0": weight, "w1": bias}))
    networks.append(saved(graph, [kept.astype("f4"), np.ones(20, "f4")], bits=4))
    nets.append(Net(graph, {"w0": kept.astype("f4"), "w1": np.ones(20, "f4")}))
    for answer, net in zip(answers(program, networks, tmp_path), nets, strict=True):
        assert answer.status == OK, answer.message
        np.testing.assert_allclose(answer.outputs[0], expected(net)[0], rtol=1e-5, atol=1e-4)


def test_whole_networks(program: Path, tmp_path: Path) -> None:
    folder = ROOT / "experiments/record"
    paths = [RECORD, *sorted(folder.glob("*.asterism"))[:2]]
    found = answers(program, [path.read_bytes() for path in paths], tmp_path)
    for path, answer in zip(paths, found, strict=True):
        assert_close(answer.outputs[0][None], expected(load(path))[0][None], path.name)


def test_ranges_for_whole_numbers_are_passed_over(program: Path, tmp_path: Path) -> None:
    layer, weight = Node("linear", (0,), (0,)), np.ones((3, 4), np.float32)
    data = encode(Graph((4,), (layer,), ranges=(1.0, 4.0)))
    whole, cut = (file.encode({"w0": weight}, graph=each) for each in (data, data[:-1]))
    found = answers(program, [whole, cut], tmp_path)
    net = Net(Graph((4,), (layer,)), {"w0": weight})
    np.testing.assert_allclose(found[0].outputs[0], expected(net)[0], rtol=1e-6)
    assert (found[1].status, "ends early" in found[1].message) == (DAMAGED, True)


def test_threads_may_share_a_network(program: Path, tmp_path: Path) -> None:
    networks = [RECORD.read_bytes(), *(saved(*random_network(seed)) for seed in range(20))]
    found, ended = run(program, networks, tmp_path, "threads")
    assert not ended, ended[:4000]
    assert all(answer.status == OK for answer in found)


def test_several_inputs_and_outputs_and_weights_made_of_weights(
    program: Path, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    norm, layer = Node("weight_norm", (0,), (0, 1)), Node("linear", (0,), (-2,))
    table, total = Node("embedding", (1,), (2,)), Node("mean", (4,), settings={"dim": 1})
    unread = Node("exp", (0,))
    graph = Graph((Input((4,)), Input((3,), True)), (norm, layer, table, total, unread), (3, 5, 0))
    weights = [random.standard_normal(s).astype("f4") for s in ((5, 4), (5, 1), (9, 6))]
    net = Net(graph, {str(place): weight for place, weight in enumerate(weights)})
    (answer,) = answers(program, [saved(graph, weights)], tmp_path)
    assert answer.status == OK, answer.message
    for mine, truth in zip(answer.outputs, expected(net), strict=True):
        np.testing.assert_allclose(mine, truth, rtol=1e-5, atol=1e-6)


def test_what_is_wrong_is_named(program: Path, tmp_path: Path) -> None:
    graph = Graph((4,), (Node("linear", (0,), (0,)),))
    right = saved(graph, [np.ones((3, 4), np.float32)])
    newer = bytearray(right)
    newer[4] = 9
    cases = {
        b"": (DAMAGED, "not an .asterism file"),
        b"PK\3\4 something else": (DAMAGED, "not an .asterism file"),
        right[:-1]: (DAMAGED, "checksum"),
        bytes(newer): (UNSUPPORTED, "version 9"),
        file.encode({"w": np.ones((3, 4), np.float32)}): (UNSUPPORTED, "without a graph"),
        saved(graph, [np.ones((3, 5), np.float32)]): (DAMAGED, "layer 0 (linear)"),
        saved(Graph((4,), (Node("fft", (0,)),)), []): (UNSUPPORTED, "no operation fft"),
        saved(Graph((0,), (Node("relu", (0,)),)), []): (UNSUPPORTED, "no numbers"),
        saved(Graph((2**20, 2**20), (Node("relu", (0,)),)), []): (DAMAGED, "too large"),
        saved(Graph((2**14,), (Node("reshape", (0,), (), (2**14, 1)),
                               Node("expand", (1,), (), (2**14, 2**13)))), []):
            (UNSUPPORTED, "multiply-adds"),
    }  # fmt: skip
    found = answers(program, list(cases), tmp_path)
    for answer, (status, text) in zip(found, cases.values(), strict=True):
        assert answer.status == status, answer.message
        assert text in answer.message
        assert "\n" not in answer.message


def test_every_cut_and_every_changed_byte_of_a_file(program: Path, tmp_path: Path) -> None:
    from zlib import crc32

    data = saved(*random_network(3))
    bodies = [data[:length] for length in range(5, len(data) - 4)]
    for place in range(5, len(data) - 4):
        bodies.append(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 : -4])
    mutants = [body + crc32(body).to_bytes(4, "little") for body in bodies]
    for answer in answers(program, mutants, tmp_path):
        assert answer.status == OK or answer.message


def test_what_is_generated_is_up_to_date() -> None:
    sys.path.insert(0, str(SOURCES))
    try:
        from generate import headers
    finally:
        sys.path.remove(str(SOURCES))
    for name, text in headers().items():
        assert (SOURCES / name).read_text() == text, (
            f"run python src/libasterism/generate.py: {name}"
        )


@pytest.mark.skipif(not has_cmake(), reason="there is no cmake here")
def test_the_example_builds_and_runs(tmp_path: Path) -> None:
    folder = ROOT / "examples/c"
    make = ["cmake", "-S", folder, "-B", tmp_path, "-DCMAKE_BUILD_TYPE=Debug"]
    subprocess.run(make, check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path], check=True, capture_output=True)
    _has_no_foreign_names(tmp_path / "libasterism/libasterism.a")
    done = subprocess.run([tmp_path / "classify", RECORD], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 × 28 × 28" in done.stdout
    done = subprocess.run([tmp_path / "classify", "missing"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "cannot read missing" in done.stderr


def _has_no_foreign_names(archive: Path) -> None:
    """A program that links the library may call its own functions as it likes."""
    told = subprocess.run(["nm", "-g", "--defined-only", archive], capture_output=True, text=True)
    names = re.findall(r" [A-Z] (\w+)$", told.stdout, re.MULTILINE)
    assert "asterism_load" in names
    assert [name for name in names if not name.startswith("asterism_")] == []
