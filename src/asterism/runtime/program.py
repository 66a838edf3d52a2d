"""From layers to the steps that the kernels run.

A network has two programs: one for single images, and one for blocks of them, in which fully
connected layers, and convolutions where it pays, hold each feature of 32 images side by side
("columns").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import asterism.runtime.cost as cost
import asterism.runtime.packing as packing
from asterism.graph.shapes import Shape, image
from asterism.graph.windows import find
from asterism.runtime.convolutions import Convolutions
from asterism.runtime.lowering import Layer
from asterism.runtime.packing import BLOCK
from asterism.runtime.reference import scale_and_shift
from asterism.runtime.steps import Buffer, Plan, Planned, place, tabulate


def plan(layers: list[Layer], shapes: Sequence[Shape], result: int, many: bool, lanes: int) -> Plan:
    """The steps of a network for single images, or for blocks, with `lanes` floats in a vector."""
    program = _Program(layers, shapes, result, many, lanes)
    for layer in layers:
        program.emit(layer)
    steps = program.finish()
    scratch = place(steps)
    return Plan(steps, scratch, program.choices, tabulate(steps))


class _Program(Convolutions):
    """One method for each kind of layer."""

    def emit(self, layer: Layer) -> None:
        op = layer.node.op
        if op == "linear":
            self.linear(layer)
        elif op == "conv":
            self.conv(layer)
        elif "pool" in op:
            self.pool(layer)
        elif op in _ACTIVATIONS:
            self.activation(layer)
        elif op in _OF_TWO:
            self.both(_OF_TWO[op], layer)
        else:
            getattr(self, op)(layer)

    def finish(self) -> list[Planned]:
        last = self.steps[-1].layer if self.steps else None
        if last is not None and self.result != 0:
            self.rows(self.result, last)
        return self.steps

    def linear(self, layer: Layer) -> None:
        value = layer.inputs[0]
        features, outputs = self.seen(layer)[-1], self.shapes[layer.out][-1]
        rows = self.size(layer.out) // outputs
        live = np.flatnonzero((layer.weight != 0).any(0)).astype(np.int32)
        turned = -features * (value not in self.values) if value in self.columns else 8 * len(live)
        turned = min(turned, features)
        choice = cost.linear(layer, self.many and rows == 1, rows, turned)
        self.choices[layer.place] = choice
        if not choice.sparse:
            sizes, data = [rows, features, outputs], packing.fc_dense(layer)
            whole = self.many and rows == 1
            source = self.rows(value, layer)
            out = self.out(layer)
            self.add(
                "FC_DENSE",
                layer,
                source,
                out,
                sizes=sizes,
                data=data,
                whole=whole,
                activation=layer.fused,
            )
        elif self.many and rows == 1:
            source, slots = self.as_columns(value, layer, live)
            data = packing.fc_sparse(layer, slots)
            out = Buffer(outputs * BLOCK, columns=True)
            self.columns[layer.out] = out, np.arange(outputs, dtype=np.int32)
            sizes = [len(data[2])]
            self.add(
                "FC_SPARSE",
                layer,
                source,
                out,
                sizes=sizes,
                data=data,
                whole=True,
                activation=layer.fused,
            )
        else:
            data = packing.fc_sparse_one(layer)
            sizes = [rows, features, outputs, len(data[3]) // 8]
            source = self.rows(value, layer)
            self.add(
                "FC_SPARSE_ONE",
                layer,
                source,
                self.out(layer),
                sizes=sizes,
                data=data,
                activation=layer.fused,
            )

    def pool(self, layer: Layer) -> None:
        channels, *size = image(self.seen(layer))
        _, *out = image(self.shapes[layer.out])
        found = find(layer.node, (size[0], size[1]), (out[0], out[1]))
        data = (np.concatenate([found.rows.ravel(), found.columns.ravel()]), found.factor)
        operation = "POOL_MAX" if "max" in layer.node.op else "POOL_AVERAGE"
        source = self.rows(layer.inputs[0], layer)
        sizes = [channels, *size, *out, *found.dilation]
        self.add(operation, layer, source, self.out(layer), sizes=sizes, data=data)

    def activation(self, layer: Layer) -> None:
        name, (first, second) = layer.node.op, _ACTIVATIONS[layer.node.op]
        a = float(layer.node.number(first)) if first else 0.0
        b = float(layer.node.number(second)) if second else 0.0
        name = "gelu_tanh" if name == "gelu" and layer.node["tanh"] else name
        value = layer.inputs[0]
        if value in self.columns:
            source, slots = self.columns[value]
            out = Buffer(source.size, columns=True)
            self.columns[layer.out] = out, slots
        else:
            source, out = self.rows(value, layer), self.out(layer)
        self.add(
            "ACTIVATE",
            layer,
            source,
            out,
            sizes=[out.size],
            whole=out.columns,
            activation=name,
            a=a,
            b=b,
        )

    def both(self, operation: str, layer: Layer) -> None:
        source, other = (self.rows(value, layer) for value in layer.inputs)
        out = self.out(layer)
        self.add(
            operation, layer, source, out, other=other, sizes=[out.size], activation=layer.fused
        )

    def batch_norm(self, layer: Layer) -> None:
        data = scale_and_shift(layer.node, layer.weights)
        source, channels = self.rows(layer.inputs[0], layer), self.shapes[layer.out][0]
        sizes = [channels, self.size(layer.out) // channels]
        self.add("SCALE", layer, source, self.out(layer), sizes=sizes, data=data)

    def layer_norm(self, layer: Layer) -> None:
        length = math.prod(self.shapes[layer.out][-layer.node["rank"] :])
        plain = (np.ones(length, np.float32), np.zeros(length, np.float32))
        data = tuple(d if w is None else w for w, d in zip(layer.weights, plain, strict=True))
        sizes = [self.size(layer.out) // length, length]
        source, eps = self.rows(layer.inputs[0], layer), float(layer.node.number("eps"))
        self.add("LAYER_NORM", layer, source, self.out(layer), sizes=sizes, data=data, a=eps)

    def softmax(self, layer: Layer) -> None:
        shape = self.shapes[layer.out]
        axis = layer.node["dim"] + len(shape)
        sizes = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
        self.add("SOFTMAX", layer, self.rows(layer.inputs[0], layer), self.out(layer), sizes=sizes)

    def permute(self, layer: Layer) -> None:
        shape = self.seen(layer)
        places = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        moved = np.ascontiguousarray(places.transpose([dim - 1 for dim in layer.node.sizes]))
        source = self.rows(layer.inputs[0], layer)
        self.add("GATHER", layer, source, self.out(layer), sizes=[moved.size], data=(moved,))

    def cat(self, layer: Layer) -> None:
        axis, done = layer.node["dim"] - 1, 0
        whole = math.prod(self.shapes[layer.out][axis:])
        sources = [self.rows(value, layer) for value in layer.inputs]
        out = self.out(layer)
        for value, source in zip(layer.node.inputs, sources, strict=True):
            part = math.prod(self.shapes[value][axis:])
            sizes = [self.size(value) // part, part, whole, done]
            self.add("COPY_CHUNKS", layer, source, out, sizes=sizes)
            done += part


_OF_TWO = {"add": "ADD", "mul": "MULTIPLY"}
_ACTIVATIONS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(["relu", "gelu", "silu", "sigmoid", "tanh"], ("", "")),
    "leaky_relu": ("slope", ""),
    "clamp": ("low", "high"),
}
