"""What each of torch's operations is in our graph: a rule by its name.

A rule adds nodes to the translation and gives the number of the value that they compute, or raises
UnsupportedError where it knows the operation, but not in this form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, fx

from asterism.graph.network import Node, Number

Arguments = dict[str, Any]
Settings = Mapping[str, Number] | tuple[int, ...]


class UnsupportedError(Exception):
    """The operation is known, but not in this form."""


class Translation:
    """What a rule adds to: the nodes so far, and the numbers of torch's values and weights."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self.weights = weights
        self.values: dict[fx.Node, int] = {}
        self.nodes: list[Node] = []

    def add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes)

    def value(self, node: Any) -> int:
        if node not in self.values:
            raise UnsupportedError
        return self.values[node]

    def layer(self, op: str, node: fx.Node, settings: Settings = (), *weights: Any) -> int:
        """`op` of the first argument, with those of its weights that there are."""
        places = [None if weight is None else self.weights[weight.name] for weight in weights]
        return self.add(Node(op, (self.value(node.args[0]),), tuple(places), settings))


def _pair(name: str, value: Any, rank: int = 2) -> dict[str, int]:
    """One number, or one for each dimension; a network of one dimension has height 1."""
    sizes = [value] * rank if isinstance(value, int) else list(value)
    sizes = sizes * rank if len(sizes) == 1 and rank == 2 else sizes
    if not all(isinstance(size, int) for size in sizes):
        raise UnsupportedError
    return {
        f"{name}_{axis}": size for axis, size in zip("hw"[2 - len(sizes) :], sizes, strict=True)
    }


def shape_of(node: Any) -> Any:
    """The shape of a node's result, or of the first of several; None where that is a number."""
    result = node.meta.get("val")
    result = result[0] if isinstance(result, tuple | list) else result
    return tuple(result.shape) if isinstance(result, Tensor) else None


def _sizes(node: Any) -> tuple[int, ...]:
    """The shape without the batch; all of it known in advance."""
    shape: tuple[int, ...] = shape_of(node)[1:]
    if not all(isinstance(size, int) for size in shape):
        raise UnsupportedError
    return shape


def _conv(to: Translation, node: fx.Node, args: Arguments) -> int:
    kernel = shape_of(args["weight"])[2:]
    rank, padding = len(kernel), args["padding"]
    dilation = list(args["dilation"]) * (rank // len(args["dilation"]))
    if padding == "valid":
        padding = 0
    elif padding == "same":
        reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        if any(size % 2 for size in reach):
            raise UnsupportedError
        padding = [size // 2 for size in reach]
    settings = {
        **_pair("padding", padding, rank),
        **_pair("stride", args["stride"], rank),
        **_pair("dilation", dilation, rank),
        "groups": args["groups"],
    }
    return to.layer("conv", node, settings, args["weight"], args["bias"])


def _linear(to: Translation, node: fx.Node, args: Arguments) -> int:
    return to.layer("linear", node, (), args["weight"], args["bias"])


def _batch_norm(to: Translation, node: fx.Node, args: Arguments) -> int:
    if args["training"] or args["running_mean"] is None:
        raise UnsupportedError
    weights = (args[name] for name in ("weight", "bias", "running_mean", "running_var"))
    return to.layer("batch_norm", node, {"eps": args["eps"]}, *weights)


def _layer_norm(to: Translation, node: fx.Node, args: Arguments) -> int:
    settings = {"rank": len(args["normalized_shape"]), "eps": args["eps"]}
    return to.layer("layer_norm", node, settings, args["weight"], args["bias"])


def _pool(op: str) -> Callable[..., int]:
    def rule(to: Translation, node: fx.Node, args: Arguments) -> int:
        rank = len(shape_of(node)) - 2
        pairs = ("kernel_size", "stride", "padding", "dilation")
        settings: dict[str, int] = {
            key: size
            for name in pairs
            if args.get(name) not in (None, [])
            for key, size in _pair(name.removesuffix("_size"), args[name], rank).items()
        }
        settings |= {"ceil": int(args["ceil_mode"])}
        if op == "avg_pool":
            settings |= {"count_padding": int(args["count_include_pad"])}
            if args.get("divisor_override") is not None:
                settings |= {"divisor": args["divisor_override"]}
        return to.layer(op, node, settings)

    return rule


def _adaptive(op: str) -> Callable[..., int]:
    def rule(to: Translation, node: fx.Node, args: Arguments) -> int:
        return to.layer(op, node, _pair("size", _sizes(node)[1:]))

    return rule


def _mean(to: Translation, node: fx.Node, args: Arguments) -> int:
    """Over all places of an image: an adaptive pooling to a single one."""
    rank = len(shape_of(args["self"]))
    dims = sorted(dim % rank for dim in args["dim"])
    if rank not in (3, 4) or dims != list(range(2, rank)) or args["dtype"] is not None:
        raise UnsupportedError
    pooled = to.layer("adaptive_avg_pool", node)
    return pooled if args["keepdim"] else to.add(Node("flatten", (pooled,)))


def _elementwise(op: str, **names: str) -> Callable[..., int]:
    """An operation on each number; `names` are torch's for our settings."""

    def rule(to: Translation, node: fx.Node, args: Arguments) -> int:
        settings = {ours: float(args[theirs]) for ours, theirs in names.items()}
        return to.layer(op, node, settings)

    return rule


def _gelu(to: Translation, node: fx.Node, args: Arguments) -> int:
    return to.layer("gelu", node, {"tanh": int(args["approximate"] == "tanh")})


def _softmax(to: Translation, node: fx.Node, args: Arguments) -> int:
    dim = args["dim"] % len(shape_of(node))
    if dim == 0 or args["dtype"] is not None:
        raise UnsupportedError
    return to.layer("softmax", node, {"dim": dim - len(shape_of(node))})


def _both(op: str) -> Callable[..., int]:
    def rule(to: Translation, node: fx.Node, args: Arguments) -> int:
        one, other = args["self"], args["other"]
        if args.get("alpha", 1) != 1 or not isinstance(other, fx.Node):
            raise UnsupportedError
        if shape_of(one) != shape_of(other):
            raise UnsupportedError
        return to.add(Node(op, (to.value(one), to.value(other))))

    return rule


def _cat(to: Translation, node: fx.Node, args: Arguments) -> int:
    dim = args["dim"] % len(shape_of(node))
    if dim == 0:
        raise UnsupportedError
    inputs = tuple(to.value(tensor) for tensor in args["tensors"])
    return to.add(Node("cat", inputs, settings={"dim": dim}))


def _flatten(to: Translation, node: fx.Node, args: Arguments) -> int:
    rank = len(shape_of(args["self"]))
    start, end = args["start_dim"] % rank, args["end_dim"] % rank
    if start == 0:
        raise UnsupportedError
    return to.layer("flatten", node, {"start": start, "end": -1 if end == rank - 1 else end})


def _reshape(to: Translation, node: fx.Node, args: Arguments) -> int:
    return to.layer("reshape", node, _sizes(node))


def _permute(to: Translation, node: fx.Node, args: Arguments) -> int:
    rank = len(shape_of(node))
    if "dims" in args:
        order = [dim % rank for dim in args["dims"]]
    else:
        order = list(range(rank))
        one, other = args["dim0"] % rank, args["dim1"] % rank
        order[one], order[other] = order[other], order[one]
    if order[0] != 0:
        raise UnsupportedError
    return to.layer("permute", node, tuple(order[1:]))


def _same(to: Translation, node: fx.Node, args: Arguments) -> int:
    if args.get("train"):
        raise UnsupportedError
    return to.value(node.args[0])


_ACTIVATIONS = {
    **{op: _elementwise(op) for op in ("relu", "silu", "sigmoid", "tanh")},
    "leaky_relu": _elementwise("leaky_relu", slope="negative_slope"),
    "hardtanh": _elementwise("clamp", low="min_val", high="max_val"),
    "relu6": _elementwise("clamp"),
}

RULES: dict[str, Callable[[Translation, fx.Node, Arguments], int]] = {
    **{f"aten.{op}.default": rule for op, rule in _ACTIVATIONS.items()},
    **{f"aten.{op}_.default": rule for op, rule in _ACTIVATIONS.items()},
    **{f"aten.conv{rank}d.{form}": _conv for rank in (1, 2) for form in ("default", "padding")},
    **{f"aten.max_pool{rank}d.default": _pool("max_pool") for rank in (1, 2)},
    **{f"aten.avg_pool{rank}d.default": _pool("avg_pool") for rank in (1, 2)},
    **{
        f"aten.adaptive_{kind}_pool{rank}d.default": _adaptive(f"adaptive_{kind}_pool")
        for kind in ("avg", "max")
        for rank in (1, 2)
    },
    **{f"aten.{op}.default": _reshape for op in ("view", "reshape")},
    **{f"aten.squeeze.{form}": _reshape for form in ("default", "dim", "dims")},
    **{f"aten.{op}.default": _same for op in ("contiguous", "clone", "dropout", "alias", "detach")},
    "aten.linear.default": _linear,
    "aten.batch_norm.default": _batch_norm,
    "aten.layer_norm.default": _layer_norm,
    "aten.mean.dim": _mean,
    "aten.gelu.default": _gelu,
    "aten.softmax.int": _softmax,
    "aten.add.Tensor": _both("add"),
    "aten.add_.Tensor": _both("add"),
    "aten.mul.Tensor": _both("mul"),
    "aten.mul_.Tensor": _both("mul"),
    "aten.cat.default": _cat,
    "aten.flatten.using_ints": _flatten,
    "aten.unsqueeze.default": _reshape,
    "aten.permute.default": _permute,
    "aten.transpose.int": _permute,
}
