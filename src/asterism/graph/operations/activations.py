"""Functions of each number by itself."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from asterism.graph.operations.operation import Elementwise, Example, UnsupportedError, settings
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
        return 0.5 * x * (1 + _erf(x / math.sqrt(2)))

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        form = "tanh" if node["tanh"] else "none"
        return lambda x: torch.nn.functional.gelu(x, approximate=form)

    def kind(self, node: NodeLike) -> tuple[str, float, float]:
        return "gelu_tanh" if node["tanh"] else "gelu", 0.0, 0.0


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


class Elu(Activation):
    """x, or below zero `alpha` · (exp(x / `width`) − 1): ELU, CELU, and SELU but for a factor."""

    name, code = "elu", 36
    defaults = settings(alpha=1.0, width=1.0)
    captures = in_place_too("elu", "selu", "celu")
    examples = (Example((3, 5, 7)), Example((40,), {"alpha": 0.5}),
                Example((40,), {"alpha": 0.5, "width": 0.5}))  # fmt: skip

    def capture(self, call: Call) -> int:
        alpha, width = float(call.args.get("alpha", _SELU_ALPHA)), 1.0
        factor = float(call.args.get("scale", 1))
        if "celu" in call.name:
            width = alpha
        elif "selu" in call.name:
            factor = _SELU_SCALE
        else:
            width = 1 / call.args["input_scale"]
        found = call.layer("elu", {"alpha": alpha, "width": width})
        return scaled(call, found, factor, 0.0)

    def of(self, node: NodeLike, x: Array) -> Array:
        alpha, width = np.float32(node.number("alpha")), np.float32(node.number("width"))
        return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / width))

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        alpha, width = float(node.number("alpha")), float(node.number("width"))
        if alpha == width:
            return lambda x: torch.nn.functional.celu(x, alpha)
        return lambda x: torch.ops.aten.elu(x, alpha, 1.0, 1 / width)

    def kind(self, node: NodeLike) -> tuple[str, float, float]:
        return "elu", float(node.number("alpha")), 1 / float(node.number("width"))


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848, 1.0507009873554804934


class Power(Activation):
    """x to the power of a number: roots, squares and reciprocals."""

    name, code = "power", 37
    defaults = settings(exponent=2.0)
    captures = (*(f"aten.{name}.default" for name in ("square", "sqrt", "rsqrt", "reciprocal")),
                "aten.pow.Tensor_Scalar")  # fmt: skip
    examples = tuple(Example((40,), {"exponent": each}) for each in (2.0, 3.0, -1.0, -2.0))

    def capture(self, call: Call) -> int:
        named = {"square": 2.0, "sqrt": 0.5, "rsqrt": -0.5, "reciprocal": -1.0}
        exponent = named.get(call.name.split(".")[1])
        exponent = float(call.args["exponent"]) if exponent is None else exponent
        return call.layer("power", {"exponent": exponent})

    def of(self, node: NodeLike, x: Array) -> Array:
        return np.power(x, np.float32(node.number("exponent")))

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return lambda x: x.pow(float(node.number("exponent")))

    def kind(self, node: NodeLike) -> tuple[str, float, float]:
        return "power", float(node.number("exponent")), 0.0


class Plain(Activation):
    """A function without settings, which numpy and torch have under some name."""

    def __init__(self, name: str, code: int, captured: str, of: Any, torch: Any) -> None:
        self.name, self.code, self.captures = name, code, in_place_too(captured)
        self._of, self._torch = of, torch

    def of(self, node: NodeLike, x: Array) -> Array:
        out: Array = self._of(x)
        return out

    def torch(self, torch: Any, node: NodeLike, *_: Any) -> Any:
        return self._torch(torch)


class Softplus(Plain):
    """log(1 + exp(x)), as torch has it without settings."""

    def __init__(self) -> None:
        super().__init__("softplus", 42, "", _softplus, _named("softplus"))
        self.captures = ("aten.softplus.default",)

    def capture(self, call: Call) -> int:
        if (call.args["beta"], call.args["threshold"]) != (1, 20):
            raise UnsupportedError
        return call.layer("softplus")


def _hard_sigmoid(x: Array) -> Array:
    return np.clip(x / 6 + np.float32(0.5), 0, 1)


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


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
    """Adds value · factor + shift."""
    return call.add("scale_shift", (value,), {"factor": factor, "shift": shift})


def _erf(x: Array) -> Array:
    erf = np.vectorize(math.erf, otypes=[np.float64])  # which knows no empty array
    return erf(x) if x.size else x


def _sigmoid(x: Array) -> Array:
    out: Array = np.reciprocal(1 + np.exp(-x))
    return out


def _named(name: str) -> Any:
    """One of torch's functions."""
    return lambda torch: getattr(torch.nn.functional, name, getattr(torch, name, None))


OPERATIONS = (
    *(Gelu(), LeakyRelu(), Clamp(), ScaleShift(), Elu(), Power(), Softplus()),
    Plain("relu", 9, "relu", lambda x: np.maximum(x, 0), _named("relu")),
    Plain("silu", 11, "silu", lambda x: x / (1 + np.exp(-x)), _named("silu")),
    Plain("sigmoid", 12, "sigmoid", _sigmoid, _named("sigmoid")),
    Plain("tanh", 13, "tanh", np.tanh, _named("tanh")),
    Plain("hard_swish", 34, "hardswish", lambda x: x * _hard_sigmoid(x), _named("hardswish")),
    Plain("hard_sigmoid", 35, "hardsigmoid", _hard_sigmoid, _named("hardsigmoid")),
    Plain("mish", 38, "mish", lambda x: x * np.tanh(_softplus(x)), _named("mish")),
    Plain("exp", 39, "exp", np.exp, _named("exp")),
    Plain("log", 40, "log", np.log, _named("log")),
    Plain("abs", 41, "abs", np.abs, _named("abs")),
    Plain("erf", 50, "erf", _erf, _named("erf")),
)
