"""Small ONNX files, built node by node, and what ONNX Runtime answers to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, TensorProto, helper, numpy_helper

BATCH = "batch"


def node(op: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def model(
    nodes: Sequence[Any],
    inputs: dict[str, Sequence[Any]],
    constants: dict[str, np.ndarray] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 20,
    integers: Sequence[str] = (),
) -> ModelProto:
    """A network; `inputs` have their shapes, batch included."""
    kinds = {name: TensorProto.INT64 if name in integers else TensorProto.FLOAT for name in inputs}
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, kinds[n], shape) for n, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=min(10, opset)
    )


def write(found: ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(found.SerializeToString())
    return path


def answers(path: Path, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)
