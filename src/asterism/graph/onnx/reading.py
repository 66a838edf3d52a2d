"""An ONNX file as a message of protobuf, and its tensors as arrays.

Files come from strangers: sizes are looked at before memory is taken, and no other file is opened.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asterism.errors import FormatError, InputError, missing
from asterism.graph.operations.operation import MAX_SIZE

MAX_BYTES = 2**31 - 1  # of a message of protobuf
OLDEST = 7  # of ONNX's operators: since then shapes are combined as numpy's
Constant = npt.NDArray[Any]


def read_model(path: str | Path) -> Any:
    """The message in a file: a ModelProto; InputError for what is none that can be read."""
    if importlib.util.find_spec("onnx") is None:
        raise missing("ONNX files need the package onnx", "from-onnx")
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.ModelProto.FromString(_bytes(Path(path)))
    except DecodeError as error:
        raise FormatError(f"{path} is damaged, or no ONNX file") from error
    versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
    if not model.HasField("graph") or not model.opset_import:
        raise FormatError(f"{path} is damaged, or no ONNX file: it holds no network")
    if versions and versions[0] < OLDEST:
        raise InputError(
            f"{path} has the operators of version {versions[0]}, and {OLDEST} is the oldest that"
            " is read: onnx.version_converter.convert_version makes a newer one of it"
        )
    if model.graph.sparse_initializer:
        raise InputError(f"{path} has sparse tensors of ONNX's: write them dense, zeros included")
    return model


def _bytes(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(f"{path} has {size:,} bytes, and an ONNX file at most {MAX_BYTES:,}")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def array_of(tensor: Any) -> Constant:
    """A tensor of a file: floats as float32, whole numbers as int64."""
    from onnx import TensorProto, numpy_helper

    if tensor.data_location == TensorProto.EXTERNAL:
        where = next((each.value for each in tensor.external_data if each.key == "location"), "?")
        raise InputError(
            f"the weights are in another file, {where}: write the network as one file, by"
            ' onnx.save(onnx.load("model.onnx"), "one_file.onnx")'
        )
    if any(size < 0 for size in tensor.dims) or math.prod(tensor.dims) > MAX_SIZE:
        raise FormatError(f"the tensor {tensor.name} has the impossible shape {list(tensor.dims)}")
    try:
        return plain(numpy_helper.to_array(tensor))
    except Exception as error:  # of a damaged tensor it may be anything
        raise FormatError(f"the tensor {tensor.name} is damaged") from error


def plain(array: Constant) -> Constant:
    """With one type for floats and one for whole numbers, wide enough for all sizes.

    >>> plain(np.int32([3])).dtype.name, plain(np.float16([3])).dtype.name
    ('int64', 'float32')
    """
    if array.dtype.kind == "b":
        return array
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float32, copy=False)
