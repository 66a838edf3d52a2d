"""Files written long ago stay readable, by every version and on every platform.

Never write these files anew: a change that needs it is a new version of the format.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asterism import file
from asterism.file.small.mixing import ONE, REACH, squash, stretch_table

GOLDEN = Path(__file__).parent / "golden"
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def network() -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays made of integers alone: no generator, no rounding."""
    n = np.arange(6 * 3 * 5 * 5)
    conv = np.where(n * n % 7 == 1, (n * 37 % 101 - 50) / 64, 0).reshape(6, 3, 5, 5)
    conv[2] = 0
    m = np.arange(8 * 24)
    linear = np.where(m * 11 % 13 < 3, (m % 5 - 2.5) / 4, 0).reshape(8, 24)
    tensors = {
        "conv1.weight": conv.astype(np.float32),
        "conv1.bias": (np.arange(6) % 2 * np.pi).astype(np.float32),
        "fc1.weight": linear.astype(np.float16),
        "fc1.bias": (np.arange(8) * 0x101).astype(np.uint16),
        "norm.running_var": np.ones(6, np.float64),
        "norm.num_batches_tracked": np.array(-12_345_678_901),
        "mask": np.arange(10) % 3 == 0,
        "nothing": np.zeros((0, 4), np.int8),
    }
    return tensors, {"fc1.bias": "bfloat16"}


def network_in_order() -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The same, the rows of its linear layer sorted by where they begin: version 2."""
    tensors, dtypes = network()
    begins = (tensors["fc1.weight"] != 0).argmax(1)
    tensors["fc1.weight"] = tensors["fc1.weight"][begins.argsort(kind="stable")]
    return tensors, dtypes


NETWORKS = {"small-1": network, "fast-1": network, "small-2": network_in_order}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_version_is_read(name):
    tensors, dtypes = NETWORKS[name]()
    contents = file.read(GOLDEN / f"{name}.asterism")
    assert contents.mode == name[:-2]
    assert contents.graph == b"\x00graph\xff"
    assert list(contents.tensors) == list(tensors)
    for name, array in tensors.items():
        found = contents.tensors[name]
        assert (found.shape, found.dtype) == (array.shape, array.dtype)
        assert found.tobytes() == array.tobytes()
        assert contents.dtypes[name] == dtypes.get(name, array.dtype.name)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_writer_still_writes_them(name):
    tensors, dtypes = NETWORKS[name]()
    data = file.encode(tensors, graph=b"\x00graph\xff", mode=name[:-2], dtypes=dtypes)
    assert data == (GOLDEN / f"{name}.asterism").read_bytes()
    assert data[4] == int(name[-1])


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.rglob("*.asterism")), ids=lambda p: p.stem)
def test_published_files_are_written_again_to_the_byte(path):
    found = file.read(path)
    assert path.read_bytes() == file.encode(
        found.tensors, graph=found.graph, mode=found.mode, dtypes=found.dtypes
    )


@pytest.mark.parametrize(("rows", "version"), [(7, 1), (8, 2)])
def test_version_2_is_written_where_enough_rows_are_in_order(rows, version):
    weight = np.tril(np.ones((12, 12), np.float32)).T[:rows]
    assert file.encode({"w": weight})[4] == version
    assert file.encode({"w": weight[::-1].copy()})[4] == 1
    assert file.encode({"w": np.ones_like(weight)})[4] == 1


def test_the_tables_of_the_model():
    assert [squash(x) for x in (-REACH, -256, 0, 1, 256, REACH)] == [
        23,
        17626,
        32768,
        32831,
        47910,
        65513,
    ]
    stretch = stretch_table()
    assert [stretch[p] for p in (0, 2047, 2048, 4095)] == [-2047, 0, 1, 2047]
    assert len(stretch) == ONE >> 4
    assert sorted(stretch) == stretch
