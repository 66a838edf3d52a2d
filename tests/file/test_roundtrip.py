"""What goes into a file comes out of it, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism import file
from asterism.errors import FormatError, InputError
from asterism.file.dtypes import DTYPES
from support.files import MODES, any_bits

HELD_BY_NUMPY = [dtype.name for dtype in DTYPES if np.dtype(dtype.storage).name == dtype.name]


def bits_of(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def assert_comes_back(tensors, mode, dtypes=None, graph=None) -> file.Contents:
    contents = file.decode(file.encode(tensors, mode=mode, dtypes=dtypes, graph=graph))
    assert list(contents.tensors) == list(tensors), "the order is kept"
    for name, array in tensors.items():
        found = contents.tensors[name]
        assert (found.shape, found.dtype) == (array.shape, array.dtype)
        assert bits_of(found) == bits_of(array), name
    assert contents.graph == graph
    assert contents.mode == mode
    return contents


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=120)
@given(arrays=st.lists(any_bits(), max_size=3))
def test_every_bit_of_every_type(mode, arrays):
    tensors = {f"layer{i}.weight": array for i, (array, _) in enumerate(arrays)}
    dtypes = {f"layer{i}.weight": name for i, (_, name) in enumerate(arrays)}
    contents = assert_comes_back(tensors, mode, dtypes)
    assert contents.dtypes == dtypes


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(30, 40), (12, 6, 3, 3), (1, 200), (200, 1), (7,), (5, 4, 3), (20, 0)]),
    density=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    levels=st.sampled_from([0, 1, 3, 17]),
)
def test_pruned_weights_of_every_density(mode, seed, shape, density, levels):
    random = np.random.default_rng(seed)
    weight = random.standard_normal(shape).astype(np.float32)
    if levels:
        weight = (np.round(weight * levels) / levels).astype(np.float32)
    weight *= random.random(shape) < density
    bias = random.standard_normal(shape[0]).astype(np.float16)
    assert_comes_back({"fc.weight": weight, "fc.bias": bias}, mode)


@pytest.mark.parametrize("mode", MODES)
def test_special_values(mode):
    payloads = np.array([0x7FC00001, 0xFFC12345, 0x7F800001, 0x80000000, 0x7F800000, 0xFF800000])
    special = payloads.astype(np.uint32).view(np.float32)
    tensors = {
        "special": special,
        "scalar": np.array(7, np.int64),
        "negative": np.array(-(2**63), np.int64),
        "zeros": np.zeros((9, 9), np.float32),
        "minus zeros": np.full((3, 3), -0.0, np.float32),
        "ones": np.ones(11, np.float64),
        "largest": np.full(2, 2**64 - 1, np.uint64),
        "": np.zeros((0, 3), np.float32),
        "ℓ1.weight": np.eye(4, dtype=np.float16),
    }
    assert_comes_back(tensors, mode, graph=b"")
    assert_comes_back({}, mode, graph=bytes(range(256)))


@pytest.mark.parametrize("mode", MODES)
def test_layouts_of_memory_do_not_matter(mode):
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    for same in (np.asfortranarray(array), array[::-1][::-1], array.astype(">f4")):
        found = file.decode(file.encode({"w": same}, mode=mode)).tensors["w"]
        np.testing.assert_array_equal(found, array)
        assert found.dtype == np.float32


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 200_000])
def test_fast_mode_over_the_edges_of_its_chunks(size):
    random = np.random.default_rng(0)
    weight = random.standard_normal(size).astype(np.float32)
    for density in (1.0, 0.4, 0.003):
        assert_comes_back({"w": weight * (random.random(size) < density)}, "fast")
    levels = random.integers(0, 16, size).astype(np.float32)
    size_of_levels = len(file.encode({"w": levels}, mode="fast"))
    assert size_of_levels < 0.65 * size
    assert_comes_back({"w": levels}, "fast")


def test_an_empty_network_of_any_size_can_be_read_again():
    weight = np.zeros((1 << 13, 1 << 12), np.float32)  # 128 MiB
    found = file.decode(file.encode({"w": weight})).tensors["w"]
    assert found.shape == weight.shape
    assert not found.any()


def test_usage_adds_up_to_the_file():
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    weight[weight < 1.5] = 0
    for mode in MODES:
        contents = file.decode(file.encode({"fc1.weight": weight}, mode=mode))
        used = contents.usage["fc1.weight"]
        assert contents.size - 20 <= used.bytes <= contents.size
        assert 2 < used.positions / np.count_nonzero(weight) < 7
        assert 22 < used.values / np.count_nonzero(weight) < 33


def test_structure_is_worth_bytes():
    random = np.random.default_rng(0)
    weight = random.standard_normal((100, 100)).astype(np.float32)
    scattered = np.where(random.random((100, 100)) < 0.05, weight, 0)
    rows, columns = random.choice(100, 25, replace=False), random.choice(100, 25, replace=False)
    block = np.zeros_like(weight)
    block[np.ix_(rows, columns)] = np.where(random.random((25, 25)) < 0.8, weight[:25, :25], 0)
    positions = [
        file.decode(file.encode({"w": w})).usage["w"].positions / np.count_nonzero(w)
        for w in (scattered, block)
    ]
    assert positions[0] < 1.06 * (-np.log2(0.05) + 0.95 * 1.48)
    assert positions[1] < positions[0] / 2.5


def test_what_one_layer_drops_the_next_one_knows():
    random = np.random.default_rng(0)
    alive = random.random(400) < 0.3
    first = (random.random((400, 20)) < 0.5) * alive[:, None].astype(np.float32)
    second = np.zeros((10, 400), np.float32)
    second[:, alive] = random.random((10, int(alive.sum()))) < 0.9
    sizes = [
        len(file.encode({"fc1.weight": w, "fc2.weight": second}))
        - len(file.encode({"fc1.weight": w}))
        for w in (first, random.permutation(first))
    ]
    assert sizes[0] < sizes[1] - 25


def test_lenet_sized_headers_take_few_bytes():
    shapes = {"conv1": (20, 1, 5, 5), "conv2": (50, 20, 5, 5), "fc1": (500, 800), "fc2": (10, 500)}
    tensors = {}
    for name, shape in shapes.items():
        tensors[f"{name}.weight"] = np.zeros(shape, np.float32)
        tensors[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    assert len(file.encode(tensors)) <= 40


def test_the_file_on_disk(tmp_path: Path):
    path = tmp_path / "net.asterism"
    assert file.write(path, {"w": np.eye(3, dtype=np.float32)}, graph=b"g") == path.stat().st_size
    contents = file.read(str(path))
    assert contents.graph == b"g"
    assert contents.size == path.stat().st_size
    with pytest.raises(InputError, match="cannot read .*nothing"):
        file.read(tmp_path / "nothing.asterism")
    path.write_bytes(b"x" * 100)
    with pytest.raises(FormatError, match=r"net\.asterism: this is not an \.asterism file"):
        file.read(path)


def test_what_cannot_be_written_is_named():
    with pytest.raises(InputError, match="w has dtype complex64: choose one of"):
        file.encode({"w": np.zeros(2, np.complex64)})
    with pytest.raises(InputError, match="w is held as float32: bfloat16 needs"):
        file.encode({"w": np.zeros(2, np.float32)}, dtypes={"w": "bfloat16"})
    with pytest.raises(InputError, match="unknown mode 'tiny'"):
        file.encode({}, mode="tiny")
    for mode in MODES:
        with pytest.raises(InputError, match="name"):
            file.encode({"a" * 5000: np.zeros(2, np.float32)}, mode=mode)
    with pytest.raises(InputError, match="zero in it"):
        file.encode({"a\0b": np.zeros(2, np.float32)})


def test_it_works_without_torch():
    program = (
        "import sys; sys.modules['torch'] = None; import numpy as np; from asterism import file;"
        "w = np.eye(3, dtype=np.float32);"
        "assert (file.decode(file.encode({'w': w})).tensors['w'] == w).all()"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
