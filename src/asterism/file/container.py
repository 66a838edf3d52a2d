"""The file around the codecs: magic, version, sections, checksum.

4 bytes   magic: 8B 41 53 54
1 byte    version: the lowest that describes it all
sections, each: 1 byte kind, varint length, that many bytes
4 bytes   CRC-32 of all bytes before it, little-endian
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple

from asterism.errors import FormatError
from asterism.file.bits import read_varint, varint

MAGIC = b"\x8bAST"
VERSION = 2
SMALL, FAST, GRAPH, PADDING = b"S", b"F", b"G", b"P"
_KINDS = {SMALL, FAST, GRAPH, PADDING}
_CHECKSUM = 4


class Sections(NamedTuple):
    """What a file has, by kind, and its version."""

    version: int
    content: dict[bytes, memoryview]


def join(sections: Mapping[bytes, bytes], version: int = 1) -> bytes:
    """A file of these sections.

    sections  by kind
    version   that a reader must know
    """
    pieces = [MAGIC + bytes([version])]
    for kind, content in sections.items():
        pieces += [kind + varint(len(content)), content]
    checksum = 0
    for piece in pieces:  # never joined twice: a section may be large
        checksum = zlib.crc32(piece, checksum)
    return b"".join([*pieces, checksum.to_bytes(_CHECKSUM, "little")])


def split(data: bytes) -> Sections:
    """The sections of a file."""
    if data[: len(MAGIC)] != MAGIC:
        raise FormatError(
            "this is not an .asterism file: make one with asterism.save(model, path,"
            " example_inputs=…), or with asterism compress"
        )
    if len(data) < len(MAGIC) + 1 + _CHECKSUM:
        raise FormatError("cut off after its first bytes")
    version = data[len(MAGIC)]
    if version > VERSION:
        raise FormatError(f"version {version}: this asterism reads up to {VERSION}")
    body, checksum = memoryview(data)[:-_CHECKSUM], data[-_CHECKSUM:]
    if zlib.crc32(body).to_bytes(_CHECKSUM, "little") != checksum:
        raise FormatError("damaged or cut off: the checksum does not match")
    if not version:
        raise FormatError("unknown version 0")
    return Sections(version, _sections(body))


def _sections(body: memoryview) -> dict[bytes, memoryview]:
    at, sections = len(MAGIC) + 1, {}
    while at < len(body):
        kind = bytes(body[at : at + 1])
        if kind not in _KINDS or kind in sections:
            raise FormatError(f"a section of unknown or repeated kind {kind!r}")
        length, at = read_varint(body, at + 1)
        if length > len(body) - at:
            raise FormatError(f"section {kind!r} is longer than the file")
        sections[kind] = body[at : at + length]
        at += length
    return sections
