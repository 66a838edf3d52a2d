"""Functions of each number by itself."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.graph.operations.operation import Elementwise, Example, settings
from asterism.graph.stages import Array, Call, FusedLayer, Given, NodeLike, Program, Shape


class Activation(Elementwise):
    """A function of one number. A new one is `of`, `torch` and its case in kernels/layers."""

    kernels = ("ACTIVATE",)
    examples: tuple[Example, ...] = (Example((3, 5, 7)),)

    def capture(self, call: Call) -> int:
        return call.layer(self.name)

    @abstractmethod
    def of(self, node: NodeLike, x: Array) -> Array:
        """The function, in numpy."""

    def numpy(self, node: NodeLike, inputs: Sequence[Array], given: Given, shape: Shape) -> Array:
        return self.of(node, inputs[0])

    def kind(self, node: NodeLike) -> tuple[str, float, float]:
        """Its name in kernels/library.py, and the two numbers that it may depend on."""
        return self.name, 0.0, 0.0

    def emit(self, program: Program, layer: FusedLayer) -> None:
        source, out = program.in_and_out(layer)
        name, a, b = self.kind(layer.node)
        step: dict[str, Any] = {"sizes": [out.size], "whole": out.columns}
        program.add("ACTIVATE", layer, source, out, **step, activation=name, a=a, b=b)


def in_place_too(*names: str) -> tuple[str, ...]:
    """Torch's names of an operation that may overwrite its input."""
    return tuple(f"aten.{name}{mark}.default" for name in names for mark in ("", "_"))


def rectified(layer: FusedLayer, node: NodeLike) -> FusedLayer | None:
    """A layer whose own step can apply a ReLU, with the one that comes after it."""
    return layer._replace(relu=True) if node.op == "relu" else None


class Relu(Activation):
    name, code = "relu", 9
    captures = in_place_too("relu")

    def of(self, node: NodeLike, x: Array) -> Array:
        return np.maximum(x, 0)

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return torch.nn.functional.relu


class Gelu(Activation):
    name, code = "gelu", 10
    defaults = settings(tanh=0)
    captures = ("aten.gelu.default",)
    examples = (Example((3, 5, 7)), Example((40,), {"tanh": 1}))

    def capture(self, call: Call) -> int:
        return call.layer("gelu", {"tanh": int(call.args["approximate"] == "tanh")})

    def of(self, node: NodeLike, x: Array) -> Array:
        if node["tanh"]:
            out: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
            return out
        erf = np.vectorize(math.erf, otypes=[np.float64])  # which knows no empty array
        return 0.5 * x * (1 + erf(x / math.sqrt(2))) if x.size else x

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        form = "tanh" if node["tanh"] else "none"
        return lambda x: torch.nn.functional.gelu(x, approximate=form)

    def kind(self, node: NodeLike) -> tuple[str, float, float]:
        return "gelu_tanh" if node["tanh"] else "gelu", 0.0, 0.0


class Silu(Activation):
    name, code = "silu", 11
    captures = in_place_too("silu")

    def of(self, node: NodeLike, x: Array) -> Array:
        out: Array = x / (1 + np.exp(-x))
        return out

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return torch.nn.functional.silu


class Sigmoid(Activation):
    name, code = "sigmoid", 12
    captures = in_place_too("sigmoid")

    def of(self, node: NodeLike, x: Array) -> Array:
        out: Array = np.reciprocal(1 + np.exp(-x))
        return out

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return torch.sigmoid


class Tanh(Activation):
    name, code = "tanh", 13
    captures = in_place_too("tanh")

    def of(self, node: NodeLike, x: Array) -> Array:
        return np.tanh(x)

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return torch.tanh


class LeakyRelu(Activation):
    name, code = "leaky_relu", 15
    defaults = settings(slope=0.01)
    captures = in_place_too("leaky_relu")
    examples = (Example((3, 5, 7), {"slope": 0.2}),)

    def capture(self, call: Call) -> int:
        return call.layer("leaky_relu", {"slope": float(call.args["negative_slope"])})

    def of(self, node: NodeLike, x: Array) -> Array:
        return np.where(x < 0, x * np.float32(node.number("slope")), x)

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda x: torch.nn.functional.leaky_relu(x, float(node.number("slope")))

    def kind(self, node: NodeLike) -> tuple[str, float, float]:
        return "leaky_relu", float(node.number("slope")), 0.0


class Clamp(Activation):
    name, code = "clamp", 16
    defaults = settings(low=0.0, high=6.0)
    captures = in_place_too("hardtanh", "relu6", "clamp")
    examples = (Example((3, 5, 7)), Example((40,), {"low": -0.5, "high": 0.7}))

    def capture(self, call: Call) -> int:
        args = call.args
        low, high = args.get("min_val", args.get("min", 0)), args.get("max_val", args.get("max", 6))
        low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
        return call.layer("clamp", {"low": float(low), "high": float(high)})

    def of(self, node: NodeLike, x: Array) -> Array:
        return np.clip(x, node.number("low"), node.number("high"))

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        low, high = node.number("low"), node.number("high")
        return lambda x: x.clamp(low, high)

    def kind(self, node: NodeLike) -> tuple[str, float, float]:
        return "clamp", float(node.number("low")), float(node.number("high"))


class ScaleShift(Activation):
    """x · factor + shift, of two numbers: what is left of sums and products with constants."""

    name, code = "scale_shift", 29
    defaults = settings(factor=1.0, shift=0.0)
    captures = ("aten.neg.default",)
    examples = (Example((3, 5, 7), {"factor": -1.5, "shift": 0.25}), Example((40,), {"shift": 3.0}))

    def capture(self, call: Call) -> int:
        return scaled(call, call.value(call.args["self"]), -1.0, 0.0)

    def of(self, node: NodeLike, x: Array) -> Array:
        return x * np.float32(node.number("factor")) + np.float32(node.number("shift"))

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        factor, shift = node.number("factor"), node.number("shift")
        return lambda x: x * factor + shift

    def kind(self, node: NodeLike) -> tuple[str, float, float]:
        return "scale_shift", float(node.number("factor")), float(node.number("shift"))


def scaled(call: Call, value: int, factor: float, shift: float) -> int:
    """Adds value · factor + shift, in one layer with what was done to the value in this form."""
    before = call.maker(value)
    if before is not None and before.op == "scale_shift":
        shift += factor * before.number("shift")
        factor *= before.number("factor")
        (value,) = before.inputs
    if (factor, shift) == (1, 0):
        return value
    return call.add("scale_shift", (value,), {"factor": factor, "shift": shift})


OPERATIONS = (Relu(), Gelu(), Silu(), Sigmoid(), Tanh(), LeakyRelu(), Clamp(), ScaleShift())
