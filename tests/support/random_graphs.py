"""Random networks over all operations, with weights of which most are zero."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from asterism.graph.network import Graph, Input, Node
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.activations import Activation
from asterism.graph.operations.operation import MisfitError

Random = np.random.Generator
Made = tuple[dict[str, float] | tuple[int, ...], list[tuple[int, ...] | None]]
Shape = tuple[int, ...]

# Whose results may be huge or no numbers at all: the examples of the operations try them.
WILD = ("exp", "log", "power")


def pick(random: Random, *numbers: int) -> int:
    return int(random.choice(numbers))


def conv(random: Random, shape: Shape) -> Made:
    rank, groups = len(shape) - 1, pick(random, 1, 1, shape[0])
    axes = "hw"[2 - rank :]
    window = tuple(pick(random, 1, 2, 3) for _ in axes)
    settings = {"groups": groups}
    for axis in axes:
        settings |= {f"padding_{axis}": pick(random, 0, 0, 1), f"stride_{axis}": pick(random, 1, 2)}
        settings[f"dilation_{axis}"] = pick(random, 1, 1, 2)
    outputs = groups * pick(random, 1, 2, 3)
    return settings, [(outputs, shape[0] // groups, *window), _maybe(random, (outputs,))]


def conv_transpose(random: Random, shape: Shape) -> Made:
    axes = "dhw"[4 - len(shape) :]
    outputs = pick(random, 1, 3)
    settings = {f"{name}_{axis}": pick(random, 1, 2) for name in ("stride",) for axis in axes}
    settings |= {f"padding_{axis}": pick(random, 0, 1) for axis in axes}
    window = tuple(pick(random, 2, 3) for _ in axes)
    return settings, [(shape[0], outputs, *window), _maybe(random, (outputs,))]


def pool(random: Random, shape: Shape) -> Made:
    axes = "hw"[3 - len(shape) :]
    settings = {f"kernel_{axis}": pick(random, 2, 3) for axis in axes}
    settings |= {f"padding_{axis}": pick(random, 0, 1) for axis in axes}
    settings |= {f"stride_{axis}": pick(random, 0, 1, 2) for axis in axes}
    return {**settings, "ceil": pick(random, 0, 1)}, []


def linear(random: Random, shape: Shape) -> Made:
    outputs = pick(random, 1, 4, 9)
    return {}, [(outputs, shape[-1]), _maybe(random, (outputs,))]


def recurrent(gates: int) -> Callable[[Random, Shape], Made]:
    def made(random: Random, shape: Shape) -> Made:
        units, both = pick(random, 2, 5), pick(random, 1, 2)
        bias = _maybe(random, (gates * units,))
        return {}, [(gates * units, shape[1]), (gates * units, units), bias, bias] * both

    return made


def attention(random: Random, shape: Shape) -> Made:
    heads = pick(random, *(n for n in (1, 2, 3) if shape[1] % n == 0))
    mask = _maybe(random, (shape[0], shape[0]))
    return {"heads": heads, "causal": 0 if mask else pick(random, 0, 1)}, [mask]


def _maybe(random: Random, shape: Shape) -> Shape | None:
    return shape if random.random() < 0.6 else None


def _dim(random: Random, shape: Shape) -> int:
    return 1 + int(random.integers(len(shape)))


def pad(random: Random, shape: Shape) -> Made:
    settings = {"dim": _dim(random, shape), "before": pick(random, 0, 1), "after": 1}
    return {**settings, "mode": pick(random, 0, 1, 2, 3), "value": 0.5}, []


MAKERS: dict[str, Callable[[Random, Shape], Made]] = {
    "conv": conv,
    "conv_transpose": conv_transpose,
    "conv3d": lambda r, s: ({"padding_h": pick(r, 0, 1)}, [(2, s[0], 1, 2, 2), _maybe(r, (2,))]),
    "max_pool": pool,
    "avg_pool": pool,
    "adaptive_avg_pool": lambda r, s: ({"size_w": pick(r, 1, 2, 3)}, []),
    "adaptive_max_pool": lambda r, s: ({"size_w": pick(r, 1, 2, 3)}, []),
    "linear": linear,
    "lstm": recurrent(4),
    "gru": recurrent(3),
    "attention": attention,
    "batch_norm": lambda r, s: ({}, [(s[0],)] * 4),
    "layer_norm": lambda r, s: ({}, [(s[-1],), _maybe(r, (s[-1],))]),
    "rms_norm": lambda r, s: ({}, [(s[-1],)]),
    "group_norm": lambda r, s: ({"groups": pick(r, 1, s[0])}, [(s[0],), _maybe(r, (s[0],))]),
    "prelu": lambda r, s: ({}, [(s[0],)]),
    "mean": lambda r, s: ({"dim": _dim(r, s)}, []),
    "softmax": lambda r, s: ({"dim": -_dim(r, s)}, []),
    "log_softmax": lambda r, s: ({"dim": -_dim(r, s)}, []),
    "cat": lambda r, s: ({"dim": _dim(r, s)}, []),
    "flatten": lambda r, s: ({}, []),
    "reshape": lambda r, s: ((s[0], -1), []),
    "permute": lambda r, s: (tuple(map(int, 1 + r.permutation(len(s)))), []),
    "slice": lambda r, s: ({"dim": 1, "start": 0, "size": max(1, s[0] // 2)}, []),
    "pad": pad,
    "expand": lambda r, s: (tuple(pick(r, 2, 3) if size == 1 else size for size in s), []),
    "resize": lambda r, s: ({"dim": 2, "size": pick(r, 3, 7), "mode": pick(r, 0, 1, 2)}, []),
    "weight": lambda r, s: ({}, [s]),
    "hide": lambda r, s: ({"causal": 1, "fill": 0.25}, []),
    "matmul": lambda r, s: ({}, []),
}
OTHERS = ("add", "sub", "mul", "maximum", "minimum")  # of two values
ACTIVATIONS = tuple(
    name
    for name, operation in OPERATIONS.items()
    if isinstance(operation, Activation) and name not in WILD
)
STARTS = ((3, 9, 8), (2, 12, 12), (1, 7, 6), (4, 17), (6, 10), (12,), (2, 3, 6, 5))


def random_network(seed: int) -> tuple[Graph, list[np.ndarray]]:
    """A graph of a few layers, of which some read one that is not the last."""
    random = np.random.default_rng(seed)
    shapes: list[Shape] = [STARTS[seed % len(STARTS)]]
    nodes: list[Node] = []
    weights: list[np.ndarray] = []
    # The longest list is of activations: they should not be most of a network.
    names = [*MAKERS, *MAKERS, *OTHERS, *ACTIVATIONS]
    wanted = pick(random, 3, 5, 8)
    while len(nodes) < wanted:
        _add(random, str(random.choice(names)), nodes, shapes, weights)
    return Graph((Input(shapes[0]),), tuple(nodes)), weights


def _add(
    random: Random, name: str, nodes: list[Node], shapes: list[Shape], weights: list[np.ndarray]
) -> None:
    """One node more, if it fits."""
    first = len(shapes) - 1 if random.random() < 0.8 else int(random.integers(len(shapes)))
    operation = OPERATIONS[name]
    fitting = [v for v, shape in enumerate(shapes) if shape == shapes[first]]
    count = 2 if operation.arity < 0 and name == "cat" else max(1, operation.arity)
    inputs = (first, *(int(random.choice(fitting)) for _ in range(count - 1)))
    try:
        settings, wanted = MAKERS.get(name, lambda *_: ({}, []))(random, shapes[first])
        made = [None if shape is None else _weight(random, shape) for shape in wanted]
        places = iter(range(len(weights), len(weights) + len(made)))
        numbers = [None if array is None else next(places) for array in made]
        node = Node(name, inputs, numbers, settings)
        given = [*made, *[None] * (operation.weights - len(made))]
        shape = operation.shape(node, [shapes[value] for value in inputs], given)
    except (MisfitError, ValueError, IndexError):
        return
    if 0 < int(np.prod(shape)) < 3000:
        nodes.append(node)
        shapes.append(shape)
        weights += [array for array in made if array is not None]


def _weight(random: Random, shape: Shape) -> np.ndarray:
    """Positive, as a variance has to be; of matrices most are zero, and some have few values."""
    array = random.uniform(0.2, 1, shape).astype(np.float32)
    if len(shape) > 1:
        array = (array - 0.6) * (random.random(shape) < random.choice([0.3, 0.9]))
    if random.random() < 0.5:
        array = (np.round(array * 5) / 5).astype(np.float32)
    return np.ascontiguousarray(array + (array == 0) * (0.1 if len(shape) == 1 else 0), np.float32)
