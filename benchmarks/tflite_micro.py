"""The same networks in TensorFlow Lite for Microcontrollers, dense and in floats, on this machine.

    python -m benchmarks.tflite_micro net.asterism...

Needs the package tflite-micro, and no torch. Writes each network as TFLite's format holds it,
checks its answers, and prints bytes of the model, of the arena that it needs, and microseconds for
one image. For networks of convolutions, max-pooling, fully connected layers, sums and means, as
`python -m benchmarks.microcontroller --keep FOLDER` leaves them.
"""

from __future__ import annotations

import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flatbuffers  # type: ignore[import-not-found,import-untyped,unused-ignore]
import numpy as np
from tflite_micro.python.tflite_micro import (  # type: ignore[import-not-found,unused-ignore]
    runtime as micro,
)
from tflite_micro.tensorflow.lite.micro.python import (  # type: ignore[import-not-found,unused-ignore]
    schema_py_generated as tfl,
)

from asterism.graph.operations.operation import image
from asterism.graph.stages import Array, FusedLayer, Shape
from asterism.runtime import Net, load
from asterism.runtime.lowering import lower, memory

ARENA = 8 << 20
SAME, VALID = 0, 1
NONE, RELU = 0, 1


class Model:
    """A network as TFLite holds it: images are (height, width, channels)."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.tensors: list[Any] = []
        self.buffers = [tfl.BufferT()]
        self.codes: list[int] = []
        self.operators: list[Any] = []
        roots = memory(net.graph)
        self.values = {0: self.tensor(_turned(net.input_shape))}
        for layer in lower(net.graph, net.shapes, net.weights):
            self.layer(layer)
        self.ends = self.values[0], self.values[roots[net.graph.outputs[0]]]

    def tensor(self, shape: Sequence[int], numbers: np.ndarray | None = None) -> int:
        made = tfl.TensorT()
        made.shape, made.name = [1, *shape], f"t{len(self.tensors)}".encode()
        made.type = 2 if numbers is not None and numbers.dtype == np.int32 else 0
        if numbers is not None:
            buffer = tfl.BufferT()
            buffer.data = np.frombuffer(numbers.tobytes(), np.uint8)
            made.shape, made.buffer = list(shape), len(self.buffers)
            self.buffers.append(buffer)
        self.tensors.append(made)
        return len(self.tensors) - 1

    def operator(self, name: str, inputs: Sequence[int], out: int, options: Any) -> None:
        code = getattr(tfl.BuiltinOperator, name)
        if code not in self.codes:
            self.codes.append(code)
        made = tfl.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = self.codes.index(code), inputs, [out]
        if options is not None:
            kind = type(options).__name__.removesuffix("T")
            made.builtinOptionsType = getattr(tfl.BuiltinOptions, kind)
            made.builtinOptions = options
        self.operators.append(made)

    def layer(self, layer: FusedLayer) -> None:
        op, shapes = layer.node.op, self.net.shapes
        seen, own = shapes[layer.node.inputs[0]], shapes[layer.place + 1]
        source = self.values[layer.inputs[0]]
        plain = not layer.pool and not layer.added
        first = RELU if layer.relu and plain else NONE
        out = self.tensor(_turned(own))
        if op == "conv":
            self.convolution(layer, source, seen, out, first)
        elif op == "linear":
            weight = _columns(layer.weight, shapes[layer.inputs[0]])
            given = [source, self.tensor(weight.shape, weight), self.bias(layer)]
            options = tfl.FullyConnectedOptionsT()
            options.fusedActivationFunction = first
            self.operator("FULLY_CONNECTED", given, out, options)
        elif op == "mean":
            options = tfl.ReducerOptionsT()
            options.keepDims = True
            axes = self.tensor([2], np.array([1, 2], np.int32))
            self.operator("MEAN", [source, axes], out, options)
        elif op == "max_pool":
            self.pool(source, out, NONE)
        else:
            raise SystemExit(f"this benchmark has no {op}")
        if layer.added:
            options = tfl.AddOptionsT()
            options.fusedActivationFunction = RELU if layer.relu else NONE
            total = self.tensor(_turned(own))
            self.operator("ADD", [out, self.values[layer.added[0]]], total, options)
            out = total
        if layer.pool:
            pooled = self.tensor(_turned(shapes[layer.out]))
            self.pool(out, pooled, RELU if layer.relu else NONE)
            out = pooled
        self.values[layer.out] = out

    def convolution(
        self, layer: FusedLayer, source: int, seen: Shape, out: int, first: int
    ) -> None:
        (ph, pw), (sh, sw) = layer.node.pair("padding"), layer.node.pair("stride")
        same = (sh, sw) == (1, 1) and (ph, pw) != (0, 0)
        if (ph, pw) != (0, 0) and not same:
            channels, height, width = image(seen)
            framed = self.tensor((height + 2 * ph, width + 2 * pw, channels))
            pads = np.array([[0, 0], [ph, ph], [pw, pw], [0, 0]], np.int32)
            self.operator("PAD", [source, self.tensor((4, 2), pads)], framed, tfl.PadOptionsT())
            source = framed
        weight = np.ascontiguousarray(layer.weight.transpose(0, 2, 3, 1))
        options = tfl.Conv2DOptionsT()
        options.padding, options.strideH, options.strideW = SAME if same else VALID, sh, sw
        options.fusedActivationFunction = first
        given = [source, self.tensor(weight.shape, weight), self.bias(layer)]
        self.operator("CONV_2D", given, out, options)

    def bias(self, layer: FusedLayer) -> int:
        return self.tensor(layer.bias.shape, layer.bias.astype(np.float32))

    def pool(self, source: int, out: int, activation: int) -> None:
        options = tfl.Pool2DOptionsT()
        options.padding, options.fusedActivationFunction = VALID, activation
        options.strideH = options.strideW = options.filterHeight = options.filterWidth = 2
        self.operator("MAX_POOL_2D", [source], out, options)

    def bytes(self) -> bytes:
        graph, model = tfl.SubGraphT(), tfl.ModelT()
        graph.tensors, graph.operators = self.tensors, self.operators
        graph.inputs, graph.outputs = [self.ends[0]], [self.ends[1]]
        model.version, model.subgraphs, model.buffers = 3, [graph], self.buffers
        model.operatorCodes = []
        for code in self.codes:
            made = tfl.OperatorCodeT()
            made.builtinCode = made.deprecatedBuiltinCode = code
            made.version = 1
            model.operatorCodes.append(made)
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def _turned(shape: Shape) -> Shape:
    return (*shape[1:], shape[0]) if len(shape) == 3 else shape


def _columns(weight: Array, shape: Shape) -> Array:
    """A matrix for inputs in TFLite's order."""
    if len(shape) < 3:
        return weight
    order = np.arange(math.prod(shape)).reshape(shape).transpose(1, 2, 0).reshape(-1)
    return np.ascontiguousarray(weight[:, order])


def arena(interpreter: Any) -> int:
    """Bytes, as the interpreter prints them."""
    with tempfile.TemporaryFile() as told:
        kept = os.dup(2), os.dup(1)
        for stream in (2, 1):
            os.dup2(told.fileno(), stream)
        interpreter.print_allocations()
        for stream, before in zip((2, 1), kept, strict=True):
            os.dup2(before, stream)
        told.seek(0)
        found = re.search(rb"allocation total (\d+)", told.read())
    assert found is not None
    return int(found[1])


def main() -> None:
    print("| | Model | RAM | µs here |\n|---|---|---|---|")
    for path in map(Path, sys.argv[1:]):
        net = load(path)
        data = Model(net).bytes()
        interpreter = micro.Interpreter.from_bytes(data, arena_size=ARENA)
        x = np.random.default_rng(0).random((1, *net.input_shape), np.float32)
        times = []
        for _ in range(50):
            # Each time: its memory is used for other values too.
            interpreter.set_input(x.transpose(0, 2, 3, 1) if x.ndim == 4 else x, 0)
            start = time.perf_counter()
            interpreter.invoke()
            times.append(time.perf_counter() - start)
        found = interpreter.get_output(0).reshape(-1)
        np.testing.assert_allclose(found, net(x).reshape(-1), rtol=1e-3, atol=1e-3)
        microseconds = 1e6 * min(times)
        print(f"| {path.stem} | {len(data):,} | {arena(interpreter):,} | {microseconds:.1f} |")


if __name__ == "__main__":
    main()
