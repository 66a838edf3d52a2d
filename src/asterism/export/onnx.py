"""The compacted dense network as an ONNX file, for engines that know nothing of sparsity."""

from __future__ import annotations

import importlib.util
import io
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from asterism.errors import missing
from asterism.graph.compaction import compact
from asterism.storage.atomic_files import write_atomically


def export_onnx(model: nn.Module, example: Tensor, path: str | Path) -> nn.Module:
    """Writes the model without its dead units; returns what was written, as a module.

    The input is called x, the output y, and both take batches of any size.

    model    a network that `compact` knows
    example  a batch of two or more: of one, the exporter would take its size for a constant
    path     the file to write
    """
    smaller = compact(model.eval()).model.eval()
    write_atomically(Path(path), onnx_bytes(smaller, example))
    return smaller


def onnx_bytes(model: nn.Module, example: Tensor) -> bytes:
    """A model as it is, in the format of ONNX."""
    if importlib.util.find_spec("onnx") is None:
        raise missing("ONNX files need the package onnx", "onnx")
    buffer: Any = io.BytesIO()  # which the exporter takes, though its types say paths only
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the exporter is the old one: it is the simpler
        torch.onnx.export(
            model,
            (example,),
            buffer,
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
        )
    return bytes(buffer.getvalue())
