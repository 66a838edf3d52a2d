"""The compacted dense network as an ONNX file, for engines that know nothing of sparsity."""

from __future__ import annotations

import importlib
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

OPSET = 20


def export_onnx(
    model: nn.Module, example: Tensor | tuple[Tensor, ...], path: str | Path
) -> nn.Module:
    """Writes the model without its dead units; returns what was written, as a module.

    The input is called x, the output y, and both take batches of any size; of several, they are
    called x1, x2 and so on. Sequences have the length of the example.

    model    a network that `compact` knows
    example  a batch of two or more: of one, the exporter would take its size for a constant; a
             tuple of one for each input
    path     the file to write
    """
    smaller = compact(model.eval()).model.eval()
    write_atomically(Path(path), onnx_bytes(smaller, example))
    return smaller


def _rms_norm(graph: Any, x: Any, sizes: Any, weight: Any, eps: Any) -> Any:
    """An operation that torch's exporter does not know, by others."""
    helper: Any = importlib.import_module("torch.onnx.symbolic_helper")
    rank, small = len(helper._get_const(sizes, "is", "sizes")), helper._get_const(eps, "f", "eps")
    axes = graph.op("Constant", value_t=torch.arange(-rank, 0))
    squares = graph.op("ReduceMean", graph.op("Mul", x, x), axes)
    squares = graph.op("Add", squares, graph.op("Constant", value_t=torch.tensor(small)))
    made = graph.op("Div", x, graph.op("Sqrt", squares))
    return made if helper._is_none(weight) else graph.op("Mul", made, weight)


def onnx_bytes(model: nn.Module, example: Tensor | tuple[Tensor, ...]) -> bytes:
    """A model as it is, in the format of ONNX."""
    if importlib.util.find_spec("onnx") is None:
        raise missing("ONNX files need the package onnx", "onnx")
    examples = example if isinstance(example, tuple) else (example,)
    with torch.no_grad():
        results = model(*examples)
    inputs, outputs = _names("x", examples), _names("y", results)
    buffer: Any = io.BytesIO()  # which the exporter takes, though its types say paths only
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the exporter is the old one: it is the simpler
        register: Any = vars(torch.onnx)["register_custom_op_symbolic"]
        register("aten::rms_norm", _rms_norm, OPSET)
        torch.onnx.export(
            model,
            examples,
            buffer,
            dynamo=False,
            opset_version=OPSET,
            input_names=inputs,
            output_names=outputs,
            dynamic_axes={name: {0: "batch"} for name in (*inputs, *outputs)},
        )
    return bytes(buffer.getvalue())


def _names(name: str, values: Any) -> list[str]:
    """The plain name, or one with a number for each of several."""
    several = isinstance(values, tuple) and len(values) > 1
    return [f"{name}{place}" for place in range(1, len(values) + 1)] if several else [name]
