"""The graph of a PyTorch model, found by `torch.export`.

Owns the translation of torch's operations into ours. What it cannot translate stays in the graph
by torch's own name, so that whoever runs it can say which operation is missing.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, export

from asterism.errors import InputError
from asterism.graph import Graph, Node, Number

Arguments = dict[str, Any]
Settings = Mapping[str, Number] | tuple[int, ...]


class _UnsupportedError(Exception):
    """The operation is known, but not in this form."""


def capture(model: nn.Module, example_inputs: Tensor | Sequence[Tensor]) -> Graph:
    """The layers of `model`, in eval mode, for inputs like the example and batches of any size.

    >>> from asterism.models import lenet300
    >>> [node.op for node in capture(lenet300(), torch.zeros(1, 1, 28, 28)).nodes]
    ['flatten', 'linear', 'relu', 'linear', 'relu', 'linear']
    """
    inputs = (example_inputs,) if isinstance(example_inputs, Tensor) else tuple(example_inputs)
    if len(inputs) != 1 or not isinstance(inputs[0], Tensor):
        raise InputError(f"a network with {len(inputs)} inputs cannot be captured: give one tensor")
    example = inputs[0].detach()
    if example.ndim < 2 or not example.is_floating_point():
        raise InputError(
            "the example input must be a batch of floating-point numbers,"
            f" not {example.dtype} of shape {tuple(example.shape)}"
        )
    names = list(model.state_dict())
    # Two examples, as torch.export takes a batch of one for a constant.
    batch = torch.zeros_like(example[:1]).expand(2, *example.shape[1:])
    try:
        program = export(copy.deepcopy(model).eval(), (batch,), dynamic_shapes=({0: Dim.AUTO},))
    except Exception as error:  # whatever a stranger's forward and torch's tracer may raise
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"torch.export cannot trace {type(model).__name__}: {reason}") from error
    return _Translation(program, names).graph(tuple(example.shape[1:]))


class _Translation:
    def __init__(self, program: ExportedProgram, names: list[str]) -> None:
        signature = program.graph_signature
        places = {name: place for place, name in enumerate(names)}
        held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self.weights = {inner: places[name] for inner, name in held.items() if name in places}
        self.inputs = set(signature.user_inputs)
        self.program = program
        self.values: dict[fx.Node, int] = {}
        self.nodes: list[Node] = []
        self.memory: dict[fx.Node, fx.Node] = {}  # of a view: the node whose memory it shares
        self.stale: set[fx.Node] = set()

    def graph(self, shape: tuple[int, ...]) -> Graph:
        for node in self.program.graph.nodes:
            if any(each in self.stale for each in node.all_input_nodes):
                raise InputError(
                    "the network reads a value after it was overwritten in place through a view:"
                    f" copy it before {node.name}"
                )
            if node.op == "placeholder" and node.name in self.inputs:
                self.values[node] = 0
                self.batch = node.meta["val"].shape[0]
            elif node.op == "call_function" and node.target is operator.getitem:
                if node.args[1] == 0:  # the values of a pooling, and not their places
                    self.values[node] = self.value(node.args[0])
            elif node.op == "call_function" and _shape(node) is not None:
                self.values[node] = self.translate(node)
                self.follow_memory(node)
            elif node.op == "output":
                results = node.args[0]
                if len(results) != 1 or results[0] not in self.values:
                    raise InputError(f"the network gives {len(results)} results; one can be run")
                return Graph(shape, _living(self.nodes, self.values[results[0]]))
        raise InputError("the network has no output")

    def follow_memory(self, node: fx.Node) -> None:
        """A value that is overwritten is the new one; what else shares its memory is stale."""
        first = node.args[0]
        if not isinstance(first, fx.Node):
            return
        if _shares_memory(node) or self.values[node] == self.values.get(first):
            self.memory[node] = self.memory.get(first, first)
        if node.target._schema.is_mutable:  # type: ignore[union-attr]
            self.values[first] = self.values[node]
            owner = self.memory[node]
            sharing = {owner, *(each for each, its in self.memory.items() if its is owner)}
            self.stale |= sharing - {first, node}

    def translate(self, node: fx.Node) -> int:
        """The number of the value that `node` computes."""
        length = len(self.nodes)
        try:
            if _shape(node)[:1] != (self.batch,):
                raise _UnsupportedError
            return _RULES[_name(node)](self, node, _arguments(node))
        except (_UnsupportedError, KeyError):
            del self.nodes[length:]
            read = [self.values[arg] for arg in node.all_input_nodes if arg in self.values]
            return self.add(Node(_name(node), tuple(read)))

    def add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes)

    def value(self, node: Any) -> int:
        if node not in self.values:
            raise _UnsupportedError
        return self.values[node]

    def layer(self, op: str, node: fx.Node, settings: Settings = (), *weights: Any) -> int:
        """`op` of the first argument, with those of its weights that there are."""
        places = [None if weight is None else self.weights[weight.name] for weight in weights]
        if not isinstance(settings, tuple):
            settings = {name: value for name, value in settings.items() if value is not None}
        return self.add(Node(op, (self.value(node.args[0]),), tuple(places), settings))


def _living(nodes: list[Node], output: int) -> tuple[Node, ...]:
    """The nodes that the output needs, renumbered."""
    needed = {output}
    for place in range(output, 0, -1):
        if place in needed:
            needed |= set(nodes[place - 1].inputs)
    numbers = {value: number for number, value in enumerate(sorted(needed | {0}))}
    return tuple(
        Node(node.op, tuple(numbers[value] for value in node.inputs), node.weights, node.settings)
        for place, node in enumerate(nodes, 1)
        if place in needed
    )


def _shares_memory(node: fx.Node) -> bool:
    """Whether the result is, or may be, the first argument's memory."""
    returned = node.target._schema.returns  # type: ignore[union-attr]
    return any(each.alias_info is not None for each in returned)


def _name(node: fx.Node) -> str:
    return str(node.target)


def _arguments(node: fx.Node) -> Arguments:
    """All arguments by name, defaults included."""
    formal = node.target._schema.arguments  # type: ignore[union-attr]
    values = {argument.name: argument.default_value for argument in formal}
    return {
        **values,
        **{argument.name: value for argument, value in zip(formal, node.args, strict=False)},
        **node.kwargs,
    }


def _pair(name: str, value: Any, rank: int = 2) -> dict[str, int]:
    """One number, or one for each dimension; a network of one dimension has height 1."""
    sizes = [value] * rank if isinstance(value, int) else list(value)
    sizes = sizes * rank if len(sizes) == 1 and rank == 2 else sizes
    if not all(isinstance(size, int) for size in sizes):
        raise _UnsupportedError
    return {
        f"{name}_{axis}": size for axis, size in zip("hw"[2 - len(sizes) :], sizes, strict=True)
    }


def _shape(node: Any) -> Any:
    """The shape of a node's result, or of the first of several; None where that is a number."""
    result = node.meta.get("val")
    result = result[0] if isinstance(result, tuple | list) else result
    return tuple(result.shape) if isinstance(result, Tensor) else None


def _sizes(node: Any) -> tuple[int, ...]:
    """The shape without the batch; all of it known in advance."""
    shape: tuple[int, ...] = _shape(node)[1:]
    if not all(isinstance(size, int) for size in shape):
        raise _UnsupportedError
    return shape


def _conv(to: _Translation, node: fx.Node, args: Arguments) -> int:
    kernel = _shape(args["weight"])[2:]
    rank, padding = len(kernel), args["padding"]
    dilation = list(args["dilation"]) * (rank // len(args["dilation"]))
    if padding == "valid":
        padding = 0
    elif padding == "same":
        reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        if any(size % 2 for size in reach):
            raise _UnsupportedError
        padding = [size // 2 for size in reach]
    settings = {
        **_pair("padding", padding, rank),
        **_pair("stride", args["stride"], rank),
        **_pair("dilation", dilation, rank),
        "groups": args["groups"],
    }
    return to.layer("conv", node, settings, args["weight"], args["bias"])


def _linear(to: _Translation, node: fx.Node, args: Arguments) -> int:
    return to.layer("linear", node, (), args["weight"], args["bias"])


def _batch_norm(to: _Translation, node: fx.Node, args: Arguments) -> int:
    if args["training"] or args["running_mean"] is None:
        raise _UnsupportedError
    weights = (args[name] for name in ("weight", "bias", "running_mean", "running_var"))
    return to.layer("batch_norm", node, {"eps": args["eps"]}, *weights)


def _layer_norm(to: _Translation, node: fx.Node, args: Arguments) -> int:
    settings = {"rank": len(args["normalized_shape"]), "eps": args["eps"]}
    return to.layer("layer_norm", node, settings, args["weight"], args["bias"])


def _pool(op: str) -> Callable[..., int]:
    def rule(to: _Translation, node: fx.Node, args: Arguments) -> int:
        rank = len(_shape(node)) - 2
        pairs = ("kernel_size", "stride", "padding", "dilation")
        settings: dict[str, int | None] = {
            key: size
            for name in pairs
            if args.get(name) not in (None, [])
            for key, size in _pair(name.removesuffix("_size"), args[name], rank).items()
        }
        settings |= {"ceil": int(args["ceil_mode"])}
        if op == "avg_pool":
            settings |= {"count_padding": int(args["count_include_pad"])}
            settings |= {"divisor": args.get("divisor_override")}
        return to.layer(op, node, settings)  # type: ignore[arg-type]

    return rule


def _adaptive(op: str) -> Callable[..., int]:
    def rule(to: _Translation, node: fx.Node, args: Arguments) -> int:
        return to.layer(op, node, _pair("size", _sizes(node)[1:]))

    return rule


def _mean(to: _Translation, node: fx.Node, args: Arguments) -> int:
    """Over all places of an image: an adaptive pooling to a single one."""
    rank = len(_shape(args["self"]))
    dims = sorted(dim % rank for dim in args["dim"])
    if rank not in (3, 4) or dims != list(range(2, rank)) or args["dtype"] is not None:
        raise _UnsupportedError
    pooled = to.layer("adaptive_avg_pool", node)
    return pooled if args["keepdim"] else to.add(Node("flatten", (pooled,)))


def _elementwise(op: str, **names: str) -> Callable[..., int]:
    """An operation on each number; `names` are torch's for our settings."""

    def rule(to: _Translation, node: fx.Node, args: Arguments) -> int:
        settings = {ours: float(args[theirs]) for ours, theirs in names.items()}
        return to.layer(op, node, settings)

    return rule


def _gelu(to: _Translation, node: fx.Node, args: Arguments) -> int:
    return to.layer("gelu", node, {"tanh": int(args["approximate"] == "tanh")})


def _softmax(to: _Translation, node: fx.Node, args: Arguments) -> int:
    dim = args["dim"] % len(_shape(node))
    if dim == 0 or args["dtype"] is not None:
        raise _UnsupportedError
    return to.layer("softmax", node, {"dim": dim - len(_shape(node))})


def _both(op: str) -> Callable[..., int]:
    def rule(to: _Translation, node: fx.Node, args: Arguments) -> int:
        one, other = args["self"], args["other"]
        if args.get("alpha", 1) != 1 or not isinstance(other, fx.Node):
            raise _UnsupportedError
        if _shape(one) != _shape(other):
            raise _UnsupportedError
        return to.add(Node(op, (to.value(one), to.value(other))))

    return rule


def _cat(to: _Translation, node: fx.Node, args: Arguments) -> int:
    dim = args["dim"] % len(_shape(node))
    if dim == 0:
        raise _UnsupportedError
    inputs = tuple(to.value(tensor) for tensor in args["tensors"])
    return to.add(Node("cat", inputs, settings={"dim": dim}))


def _flatten(to: _Translation, node: fx.Node, args: Arguments) -> int:
    rank = len(_shape(args["self"]))
    start, end = args["start_dim"] % rank, args["end_dim"] % rank
    if start == 0:
        raise _UnsupportedError
    return to.layer("flatten", node, {"start": start, "end": -1 if end == rank - 1 else end})


def _reshape(to: _Translation, node: fx.Node, args: Arguments) -> int:
    return to.layer("reshape", node, _sizes(node))


def _permute(to: _Translation, node: fx.Node, args: Arguments) -> int:
    rank = len(_shape(node))
    if "dims" in args:
        order = [dim % rank for dim in args["dims"]]
    else:
        order = list(range(rank))
        one, other = args["dim0"] % rank, args["dim1"] % rank
        order[one], order[other] = order[other], order[one]
    if order[0] != 0:
        raise _UnsupportedError
    return to.layer("permute", node, tuple(order[1:]))


def _same(to: _Translation, node: fx.Node, args: Arguments) -> int:
    if args.get("train"):
        raise _UnsupportedError
    return to.value(node.args[0])


_ACTIVATIONS = {
    **{op: _elementwise(op) for op in ("relu", "silu", "sigmoid", "tanh")},
    "leaky_relu": _elementwise("leaky_relu", slope="negative_slope"),
    "hardtanh": _elementwise("clamp", low="min_val", high="max_val"),
    "relu6": _elementwise("clamp"),
}

_RULES: dict[str, Callable[[_Translation, fx.Node, Arguments], int]] = {
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
