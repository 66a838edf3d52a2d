"""A node of ONNX's, as a rule sees it: its attributes, its inputs, and where its layers go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from asterism.errors import InputError
from asterism.graph.onnx.layers import ReadLayers
from asterism.graph.onnx.reading import Constant, array_of
from asterism.graph.onnx.values import Missing, Sizes, Value
from asterism.graph.operations.operation import UnsupportedError
from asterism.graph.stages import Settings

Operand = Value | Missing | Constant
Result = Value | Constant | list[Value] | list[Constant]
FREE = 2**26  # numbers that every network may compute in advance


class Allowance:
    """How many numbers may still be computed in advance, over all nodes."""

    def __init__(self, file_bytes: int) -> None:
        self.left = FREE + 4 * file_bytes

    def take(self, count: int) -> None:
        self.left -= count
        if count < 0 or self.left < 0:
            raise InputError(
                "the network computes more numbers from its constants than its file can hold"
            )


class About(NamedTuple):
    """What is the same for all nodes of a file.

    opset   the version of ONNX's operators
    batch   the size of the batch, where the file fixes it, and else 0
    budget  for what is computed in advance
    used    the names that anything reads
    """

    opset: int
    batch: int
    budget: Allowance
    used: frozenset[str]


class OnnxCall:
    """One node.

    node    ONNX's
    known   what each name stands for: a value of the network, or numbers
    layers  to which the layers are added
    about   what is the same for all nodes
    """

    def __init__(
        self, node: Any, known: Mapping[str, Operand], layers: ReadLayers, about: About
    ) -> None:
        self.node, self.known, self.layers = node, known, layers
        self.opset, self.batch, self.budget, self.used = about
        self.op = str(node.op_type)
        self._attributes = {each.name: each for each in node.attribute}

    # ------------------------------------------------------------------ attributes

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute; text as text, and a tensor as an array."""
        if name not in self._attributes:
            return default
        from onnx import TensorProto, helper

        found = helper.get_attribute_value(self._attributes[name])
        if isinstance(found, TensorProto):
            return array_of(found)
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else found

    def integers(self, name: str, place: int) -> list[int] | None:
        """What was an attribute in old versions, and is an input in new ones."""
        if self.has(place):
            return [int(number) for number in np.atleast_1d(self.array(place)).tolist()]
        found = self.attr(name)
        return None if found is None else [int(number) for number in found]

    # ------------------------------------------------------------------ inputs

    @property
    def count(self) -> int:
        return len(self.node.input)

    def has(self, place: int) -> bool:
        return place < self.count and self.node.input[place] != ""

    def operand(self, place: int) -> Value | Constant:
        """A value or numbers; UnsupportedError where a missing operation makes it."""
        found = self.known.get(self.node.input[place]) if self.has(place) else None
        if found is None or isinstance(found, Missing):
            raise UnsupportedError
        return found

    def operands(self) -> list[Value | Constant]:
        return [self.operand(place) for place in range(self.count)]

    def value(self, place: int = 0) -> Value:
        found = self.operand(place)
        if not isinstance(found, Value):
            raise UnsupportedError("of constants")
        return found

    def plain(self, place: int = 0) -> Value:
        """A value with the batch first."""
        found = self.value(place)
        if not found.is_plain:
            raise UnsupportedError("along the batch")
        return found

    def array(self, place: int) -> Constant:
        found = self.operand(place)
        if isinstance(found, Value):
            raise UnsupportedError("with numbers that are computed")
        return found

    def floats(self, place: int) -> Constant | None:
        return self.array(place).astype(np.float32) if self.has(place) else None

    def number(self, place: int, default: float) -> float:
        """An input that is one number."""
        return float(self.array(place).reshape(())) if self.has(place) else default

    def weight(self, place: int, array: Constant | None = None) -> int | None:
        """The place of a weight, as it is or in another form; None where there is none."""
        if not self.has(place):
            return None
        return self.named(place, self.array(place) if array is None else array)

    def named(self, place: int, array: Constant) -> int:
        """The place of an array as a weight, with the name of an input."""
        return self.layers.weight(self.node.input[place], array)

    def wants(self, result: int) -> bool:
        """Whether anything reads this one of several results."""
        return result < len(self.node.output) and self.node.output[result] in self.used - {""}

    # ------------------------------------------------------------------ layers

    def add(
        self, op: str, inputs: tuple[int, ...], settings: Settings = (), *weights: int | None
    ) -> int:
        return self.layers.add(op, inputs, settings, *weights)

    def like(self, value: Value, number: int, kind: str | None = None) -> Value:
        """A new value whose batch is where that of another is."""
        sizes, axis = self.layers.shapes[number], value.axis
        shape = (*sizes[:axis], value.shape[axis], *sizes[axis + len(value.inner) :])
        return value._replace(number=number, shape=shape, kind=kind or value.kind)

    def layer(self, op: str, value: Value, settings: Settings = (), *weights: int | None) -> Value:
        """One layer of one value."""
        return self.like(value, self.add(op, (value.number,), settings, *weights))

    def reshaped(self, value: Value, shape: Sizes) -> Value:
        """The same numbers in another shape of ONNX's."""
        found = value.reshaped(shape)
        if found.sizes == self.layers.shapes[value.number]:
            return found
        return found._replace(number=self.add("reshape", (value.number,), found.sizes))

    def spread(self, place: int, array: Constant, shape: Sizes) -> Value:
        """Numbers as a value: the same for each example of a batch.

        array  without the batch: its shape is the graph's
        shape  ONNX's
        """
        weight = self.named(place, array)
        kind = {"b": "b", "i": "i"}.get(array.dtype.kind, "f")
        return Value(self.add("weight", (0,), (), weight), shape, kind)
