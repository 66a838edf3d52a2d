"""ONNX's operators as layers of ours: one function each, in the table of its family.

elementwise  functions of each number, and two values number by number
shaping      other shapes and orders, parts, several values as one
linear       matrices times values, convolutions, embeddings' tables
images       pooling and resizing
reductions   sums and their like along dimensions, softmax, norms
recurrent    LSTM and GRU
"""

from __future__ import annotations

from collections.abc import Callable

import asterism.graph.onnx.rules.elementwise as elementwise
import asterism.graph.onnx.rules.images as images
import asterism.graph.onnx.rules.linear as linear
import asterism.graph.onnx.rules.recurrent as recurrent
import asterism.graph.onnx.rules.reductions as reductions
import asterism.graph.onnx.rules.shaping as shaping
from asterism.graph.onnx.calls import OnnxCall, Result

RULES: dict[str, Callable[[OnnxCall], Result]] = {
    **elementwise.RULES,
    **shaping.RULES,
    **linear.RULES,
    **images.RULES,
    **reductions.RULES,
    **recurrent.RULES,
}
