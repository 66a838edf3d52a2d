"""What is in a file or a checkpoint, layer by layer, and what the whole would take elsewhere."""

from __future__ import annotations

import importlib
import io
import math
import zlib
from collections.abc import Callable
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from asterism.file import Contents
from asterism.file.dtypes import dtype_of, to_words, widen_bfloat16


class StoredLayer(TypedDict):
    """A weight of two or more dimensions in a file; `bytes` are those that it takes there."""

    name: str
    shape: list[int]
    nonzeros: int
    density_percent: float | None
    kurtosis: float | None
    bytes: int


class StoredTotal(TypedDict):
    """All tensors of a file; `ratio` is their size in memory over the file's."""

    weights: int
    nonzeros: int
    density_percent: float | None
    bytes: int
    dense_bytes: int
    ratio: float


class FileSummary(TypedDict):
    """What `asterism inspect --json` prints."""

    layers: list[StoredLayer]
    total: StoredTotal


def summarise(contents: Contents) -> FileSummary:
    """The layers of a file and the total over all its tensors."""
    layers: list[StoredLayer] = [
        {
            "name": name,
            "shape": list(array.shape),
            "nonzeros": count(contents, name),
            "density_percent": _percent(count(contents, name), array.size),
            "kurtosis": kurtosis(_values(contents, name)),
            "bytes": round(contents.usage[name].bytes),
        }
        for name, array in weights(contents).items()
    ]
    entries = sum(array.size for array in weights(contents).values())
    nonzeros = sum(layer["nonzeros"] for layer in layers)
    dense = sum(array.nbytes for array in contents.tensors.values())
    total: StoredTotal = {
        "weights": entries,
        "nonzeros": nonzeros,
        "density_percent": _percent(nonzeros, entries),
        "bytes": contents.size,
        "dense_bytes": dense,
        "ratio": dense / contents.size,
    }
    return {"layers": layers, "total": total}


def weights(contents: Contents) -> dict[str, NDArray[Any]]:
    """The tensors of two or more dimensions."""
    return {name: array for name, array in contents.tensors.items() if array.ndim > 1}


def count(contents: Contents, name: str) -> int:
    """The elements whose value is not zero: −0 is one."""
    return int(np.count_nonzero(_values(contents, name)))


def live_units(array: NDArray[Any]) -> tuple[int, int]:
    """The outputs and inputs that have any non-zero weight."""
    alive = array != 0
    outputs = alive.reshape(len(array), -1).any(1)
    inputs = alive.any(axis=(0, *range(2, array.ndim)))
    return int(outputs.sum()), int(np.sum(inputs))


def kurtosis(array: NDArray[Any]) -> float | None:
    """E[((W − μ) / σ)⁴] over all elements; None where σ = 0, as JSON has no nan."""
    values = array.astype(np.float64).reshape(-1)
    if not np.isfinite(values).all() or not (values != values[:1]).any():
        return None
    centred = values - values.mean()
    found = float(np.mean((centred / np.sqrt(np.mean(centred**2))) ** 4))
    return found if math.isfinite(found) else None


def other_sizes(contents: Contents) -> dict[str, int]:
    """The bytes of the same tensors in the usual formats, each at its best; zstd if installed."""
    arrays = contents.tensors
    compressed = io.BytesIO()
    np.savez_compressed(compressed, *arrays.values())
    tool, squeeze = _compressor()
    return {
        "dense": sum(array.nbytes for array in arrays.values()),
        "npz": compressed.tell(),
        f"csr+{tool}": len(squeeze(b"".join(map(_csr, arrays.values())))),
        f"bitmask+{tool}": len(squeeze(b"".join(map(_bitmask, arrays.values())))),
    }


def _compressor() -> tuple[str, Callable[[bytes], bytes]]:
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        return "zlib", lambda data: zlib.compress(data, 9)
    return "zstd", zstandard.ZstdCompressor(level=19).compress


def _csr(array: NDArray[Any]) -> bytes:
    if array.ndim < 2 or not array.size:
        return bytes(array.tobytes())
    matrix = array.reshape(len(array), -1)
    rows, columns = np.nonzero(matrix)
    index = np.uint16 if matrix.shape[1] <= 1 << 16 else np.uint32
    counts = np.bincount(rows, minlength=len(matrix)).astype(np.uint16)
    return counts.tobytes() + columns.astype(index).tobytes() + matrix[rows, columns].tobytes()


def _bitmask(array: NDArray[Any]) -> bytes:
    if array.ndim < 2 or not array.size:
        return bytes(array.tobytes())
    alive = array != 0
    return b"".join((np.packbits(alive).tobytes(), array[alive].tobytes()))


def _values(contents: Contents, name: str) -> NDArray[Any]:
    """As numbers that numpy can count with."""
    array, dtype = contents.tensors[name], contents.dtypes[name]
    if dtype == "bfloat16":
        return widen_bfloat16(array)
    if dtype.startswith("float8"):
        return to_words(array, dtype_of(name, array, dtype)) & np.uint8(0x7F)
    return array


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None
