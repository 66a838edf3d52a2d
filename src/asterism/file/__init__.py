"""The `.asterism` file: arrays ↔ bytes, in numpy alone.

    write("net.asterism", {"fc.weight": weight})
    read("net.asterism").tensors["fc.weight"]

Knows nothing of torch, models or training; the graph of a network is a string of bytes to it. The
format is specified in docs/format.md.

    container   magic, version, sections, checksum
    tensors     a tensor in a file, and the limits of sizes
    dtypes      the element types
    bits        integers as bytes
    quantising  few values in the place of many
    summary     what is in a file, layer by layer
    small/      the codec for the smallest file
    fast/       the codec for large networks
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import asterism.file.container as container
from asterism.errors import FormatError, InputError
from asterism.file.dtypes import FLOATS, dtype_of, from_words, to_words
from asterism.file.small.symbols import MAX_TEXT
from asterism.file.tensors import MAX_RANK, Allowance, Tensor, Usage, footprint

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

Mode = Literal["small", "fast"]
SaveMode = Literal["auto", "small", "fast"]
Bits = int | Mapping[str, int] | None

EXPANSION = 1 << 14
"""How many times its size a file may decode to, beyond 64 MiB: more is no network but an attack."""
FLOOR = 1 << 26

SMALL_ELEMENTS = 1 << 21
"""The most elements for which `auto` takes the small mode, which is slow; then the fast one."""

_KINDS: dict[Mode, bytes] = {"small": container.SMALL, "fast": container.FAST}
_CODECS = {"small": "asterism.file.small.codec", "fast": "asterism.file.fast.codec"}


class Contents(NamedTuple):
    """What is in a file.

    An array of a type that numpy does not have holds the bits as unsigned integers: `dtypes` names
    the type of each. `usage` says what each tensor takes of the file's `size` in bytes.
    """

    tensors: dict[str, NDArray[Any]]
    dtypes: dict[str, str]
    graph: bytes | None
    mode: Mode
    usage: dict[str, Usage]
    size: int


def write(
    path: str | Path,
    tensors: Mapping[str, NDArray[Any]],
    *,
    graph: bytes | None = None,
    mode: Mode = "small",
    bits: Bits = None,
    dtypes: Mapping[str, str] | None = None,
) -> int:
    """Writes a file, whole or not at all; returns its size in bytes.

    path     the file to write
    tensors  arrays by name
    graph    the network as bytes, for the runtime
    mode     "small" for the smallest file, "fast" for large networks
    bits     a codebook of 2^bits values for each floating tensor, or for those it names; lossless
             without
    dtypes   names of types that numpy does not have, e.g. bfloat16 for an array of uint16
    """
    data = encode(tensors, graph=graph, mode=mode, bits=bits, dtypes=dtypes)
    from pathlib import Path

    from asterism.storage.atomic_files import write_atomically

    write_atomically(Path(path), data)
    return len(data)


def choose_mode(arrays: Mapping[str, NDArray[Any]], mode: SaveMode) -> Mode:
    """Small, unless that would take minutes."""
    if mode != "auto":
        return mode
    elements = sum(array.size for array in arrays.values())
    return "small" if elements <= SMALL_ELEMENTS else "fast"


def read(path: str | Path) -> Contents:
    """Reads a file; FormatError with the reason if anything about it is wrong."""
    try:
        with open(path, "rb") as opened:
            data = opened.read()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return decode(data)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error


def recognises(path: str | Path) -> bool:
    """Whether a file begins as ours do, whatever its name."""
    try:
        with open(path, "rb") as opened:
            return opened.read(len(container.MAGIC)) == container.MAGIC
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def encode(
    tensors: Mapping[str, NDArray[Any]],
    *,
    graph: bytes | None = None,
    mode: Mode = "small",
    bits: Bits = None,
    dtypes: Mapping[str, str] | None = None,
) -> bytes:
    """The bytes that `write` writes.

    tensors, graph, mode, bits, dtypes  as there
    """
    if mode not in _KINDS:
        raise InputError(f"unknown mode {mode!r}: choose from {', '.join(_KINDS)}")
    known = dtypes or {}
    prepared = [
        _prepare(name, np.asarray(array), known.get(name), _bits_of(name, bits))
        for name, array in tensors.items()
    ]
    version, section = _codec(mode).encode(prepared)
    sections: dict[bytes, bytes] = {_KINDS[mode]: section}
    if graph is not None:
        sections[container.GRAPH] = graph
    data = container.join(sections, version)
    decoded = sum(footprint(tensor.shape, tensor.dtype) for tensor in prepared)
    if decoded > _limit(len(data)):
        # So empty that a reader would not trust it: rare enough to afford the padding.
        sections[container.PADDING] = bytes(decoded // EXPANSION + 1)
        data = container.join(sections, version)
    return data


def decode(data: bytes) -> Contents:
    """What `encode` was given."""
    version, sections = container.split(data)
    modes = [mode for mode, kind in _KINDS.items() if kind in sections]
    if len(modes) != 1:
        raise FormatError(f"{len(modes)} sections of tensors in the place of one")
    graph = bytes(sections[container.GRAPH]) if container.GRAPH in sections else None
    contents = Contents({}, {}, graph, modes[0], {}, len(data))
    section, allowance = sections[_KINDS[modes[0]]], Allowance(_limit(len(data)))
    for tensor, usage in _codec(modes[0]).decode(section, allowance, version):
        array = from_words(tensor.words, tensor.dtype, tensor.shape)
        contents.tensors[tensor.name] = array
        contents.dtypes[tensor.name] = tensor.dtype.name
        contents.usage[tensor.name] = usage
    return contents


def _codec(mode: Mode) -> ModuleType:
    """Imported for the first file of its kind: most programs read one."""
    return importlib.import_module(_CODECS[mode])


def _limit(size: int) -> int:
    return max(FLOOR, EXPANSION * size)


def _bits_of(name: str, bits: Bits) -> int | None:
    return bits if bits is None or isinstance(bits, int) else bits.get(name)


def _prepare(name: str, array: NDArray[Any], said: str | None, bits: int | None) -> Tensor:
    if "\0" in name or len(name.encode()) > MAX_TEXT or array.ndim > MAX_RANK:
        raise InputError(
            f"the name {name[:40]!r} is longer than {MAX_TEXT} bytes, or has a zero in it, or its"
            f" tensor has more than {MAX_RANK} dimensions"
        )
    dtype = dtype_of(name, array, said)
    if bits is not None and dtype.name in FLOATS:
        from asterism.file.quantising import quantise_elements

        try:
            array = quantise_elements(array, dtype, bits)
        except InputError as error:
            raise InputError(f"{name}: {error}") from error
    words = to_words(array, dtype)
    if dtype.name == "bool":
        words = (words != 0).astype(dtype.words)
    return Tensor(name, dtype, array.shape, words)
