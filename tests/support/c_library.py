"""libasterism, compiled with the sanitizers, and networks run by it: tests/libasterism/driver.c."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asterism.runtime import Net
from support.compiled_c import COMPILER
from support.paths import ROOT

SOURCES = ROOT / "src/libasterism"
FILES = sorted(SOURCES.glob("*.c"))
FLAGS = ("-std=gnu11", "-pthread", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# More memory than that is refused, as on a machine that has no more.
LIMITS = (
    "detect_leaks=1:allocator_may_return_null=1:max_allocation_size_mb=3000:soft_rss_limit_mb=4000"
)
BATCH = 2
OK = 0


class Answer(NamedTuple):
    """What became of one network.

    status   0 where it ran
    message  of one line, else
    """

    status: int
    seconds: float
    message: str
    outputs: list[np.ndarray]


def build(folder: Path, flags: Sequence[str] = SANITIZED) -> Path:
    """The driver, with the library in it."""
    program = folder / "driver"
    files = [str(path) for path in (ROOT / "tests/libasterism/driver.c", *FILES)]
    command = [
        str(COMPILER),
        *FLAGS,
        *flags,
        "-pthread",
        f"-I{SOURCES}",
        *files,
        "-o",
        str(program),
        "-lm",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return program


def run(
    program: Path, networks: Sequence[bytes], folder: Path, *threads: str
) -> tuple[list[Answer], str]:
    """The answers, as far as the program came, and what it said at its end if it did not.

    threads  any word, for four threads that run each network at once
    """
    given = folder / "networks"
    given.write_bytes(b"".join(struct.pack("<Q", len(each)) + each for each in networks))
    environment = {**os.environ, "ASAN_OPTIONS": LIMITS}
    done = subprocess.run([program, given, *threads], capture_output=True, env=environment)
    said = f"ended with {done.returncode}: {done.stderr.decode()}"
    return list(_answers(done.stdout)), said if done.returncode else ""


def _answers(data: bytes) -> Iterator[Answer]:
    at = 0

    def size() -> int:
        nonlocal at
        at += 8
        return int(struct.unpack_from("<Q", data, at - 8)[0])

    while at < len(data):
        status = size()
        (seconds,) = struct.unpack_from("<d", data, at)
        at += 8
        length = size()
        message, outputs = data[at : at + length].decode(), []
        at += length
        for _ in range(size() if status == OK else 0):
            count = size()
            outputs.append(np.frombuffer(data, "<f4", count, at))
            at += 4 * count
        yield Answer(status, seconds, message, outputs)


def examples(net: Net) -> list[np.ndarray]:
    """What the driver gives a network."""
    found = []
    for each in net.graph.inputs:
        numbers = np.arange(BATCH * int(np.prod(each.shape)), dtype=np.int64) * 37
        made = numbers % 7 if each.integer else (numbers % 101).astype("f4") / 50 - 1
        found.append(made.astype(np.float32).reshape(BATCH, *each.shape))
    return found


def expected(net: Net) -> list[np.ndarray]:
    """What the runtime answers to that."""
    inputs = zip(examples(net), net.graph.inputs, strict=True)
    made = net(*(x.astype(np.int64) if each.integer else x for x, each in inputs))
    outputs = made if isinstance(made, tuple) else (made,)
    return [each.reshape(-1) for each in outputs]


def has_cmake() -> bool:
    return shutil.which("cmake") is not None
