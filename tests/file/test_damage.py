"""Damaged, cut off, hostile, newer: always FormatError with a reason, never anything else."""

from __future__ import annotations

import random
import resource
import sys
import tracemalloc

import numpy as np
import pytest

from asterism import file
from asterism.errors import FormatError
from asterism.file import container
from asterism.file.bits import varint
from support.files import FILES, KINDS, MODES, mutations, sealed


def decodes_or_refuses(data: bytes) -> bool:
    """Whether it was refused; anything but FormatError is a failure."""
    try:
        contents = file.decode(data)
    except FormatError:
        return True
    assert all(isinstance(array, np.ndarray) for array in contents.tensors.values())
    return False


@pytest.mark.parametrize("mode", KINDS)
def test_cut_off_anywhere(mode):
    for end in range(len(FILES[mode])):
        with pytest.raises(FormatError):
            file.decode(FILES[mode][:end])


@pytest.mark.parametrize("mode", KINDS)
def test_cut_off_anywhere_and_sealed(mode):
    for end in range(len(FILES[mode]) - 4):
        assert decodes_or_refuses(sealed(FILES[mode][:end])) or end == len(FILES[mode]) - 11


@pytest.mark.parametrize("mode", KINDS)
def test_every_bit_flipped(mode):
    for place in range(8 * len(FILES[mode])):
        data = bytearray(FILES[mode])
        data[place // 8] ^= 1 << place % 8
        with pytest.raises(FormatError):
            file.decode(bytes(data))


@pytest.mark.parametrize("mode", KINDS)
def test_random_mutations(mode):
    tracemalloc.start()
    refused = sum(decodes_or_refuses(data) for data in mutations(mode, 300, seed=1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused > 250
    assert peak < 4 * file.FLOOR


@pytest.mark.slow
@pytest.mark.parametrize("mode", KINDS)
def test_a_million_mutations(mode):
    """Half of them with the checksum recomputed: those reach the decoder."""
    before = peak_memory()
    refused = sum(decodes_or_refuses(data) for data in mutations(mode, 500_000, seed=2))
    assert refused > 400_000
    assert peak_memory() - before < 8 * file.FLOOR


def peak_memory() -> int:
    """The most bytes that this process has ever had, compiled code included."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@pytest.mark.parametrize("mode", MODES)
def test_random_bytes_in_a_sealed_section(mode):
    kind = {"small": container.SMALL, "fast": container.FAST}[mode]
    chance = random.Random(4)
    for _ in range(200):
        decodes_or_refuses(container.join({kind: chance.randbytes(chance.randrange(60))}))


def test_a_newer_version_says_so():
    data = bytearray(FILES["small"][:-4])
    data[4] = container.VERSION + 1
    with pytest.raises(FormatError, match="version 3: this asterism reads up to 2"):
        file.decode(sealed(bytes(data)))


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({}, "0 sections of tensors"),
        ({container.SMALL: b"\0", container.FAST: b"\0"}, "2 sections of tensors"),
        ({b"Z": b""}, "unknown or repeated kind b'Z'"),
        ({container.FAST: b"\0\0"}, "1 bytes are left over"),
        (
            {container.FAST: b"\1\1w\0\x02" + varint(1 << 20) * 2 + b"\0abcd"},
            "the limit for a file",
        ),
        ({container.FAST: b"\1\1w\0\x02" + varint(0) + varint(1 << 62)}, "the limit for a file"),
        ({container.FAST: b"\1\1w\0\x40"}, "64 dimensions"),
        ({container.FAST: b"\1\1w\x7f\0"}, "dtype number 127"),
        ({container.FAST: b"\1\1\xff\0\0"}, "not UTF-8"),
        ({container.FAST: b"\2" + b"\1w\0\1\0" * 2}, "two tensors are called 'w'"),
        ({container.FAST: b"\1\1w\0\1\2\x09"}, "unknown layout 9"),
        ({container.FAST: b"\1\1w\0\1\2\3\5"}, "5 non-zero elements among 2"),
        ({container.SMALL: varint(99)}, "longer than its section"),
        ({container.SMALL: b"\1\0"}, "end too early"),
    ],
)
def test_hostile_files(sections, reason):
    with pytest.raises(FormatError, match=reason):
        file.decode(container.join(sections))


def test_a_section_longer_than_the_file():
    body = container.MAGIC + bytes([container.VERSION]) + b"S" + varint(1 << 40)
    with pytest.raises(FormatError, match="longer than the file"):
        file.decode(sealed(body))
