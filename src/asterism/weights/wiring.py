"""Which layer reads which: the graph of a model, seen by its weights alone.

Owns a picture of the model for people. It needs no input and computes nothing; what runs a
network is captured in the room `graph`, which is stricter.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise

from torch import fx, nn

Wiring = dict[str, list[str]]
"""By weight, in the order of the forward pass: the weights whose outputs it reads."""


def wiring(model: nn.Module, names: Sequence[str]) -> Wiring:
    """The wiring of the named weights; one after the other if the model cannot be traced.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> wiring(model, ["0.weight", "2.weight"])
    {'0.weight': [], '2.weight': ['0.weight']}
    """
    try:
        graph = fx.Tracer().trace(_stand_in(model))
    except Exception:  # a forward may do anything, and a picture is not worth an error
        return chain(names)
    return _follow(graph, names)


def chain(names: Sequence[str]) -> Wiring:
    """Each weight after the one before it.

    >>> chain(["a", "b"])
    {'a': [], 'b': ['a']}
    """
    return {name: list(names[max(at - 1, 0) : at]) for at, name in enumerate(names)}


def _stand_in(model: nn.Module) -> nn.Module:
    """Copies of the modules around the same tensors: a forward may leave traces in a module."""
    shared = {id(each): each for each in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def _follow(graph: fx.Graph, names: Sequence[str]) -> Wiring:
    """From the first operation to the last, with what each value was made from."""
    found: Wiring = {}
    sources: dict[fx.Node, list[str]] = {}
    for node in graph.nodes:
        weights = _weights_of(node, names)
        before = [name for each in node.all_input_nodes for name in sources[each]]
        before = [name for name in dict.fromkeys(before) if name not in weights]
        for earlier, name in pairwise([None, *weights]):
            reads = before if earlier is None else [earlier]
            assert name is not None
            found[name] = list(dict.fromkeys([*found.get(name, []), *reads]))
        sources[node] = weights[-1:] or before
    return found | {name: [] for name in names if name not in found}


def _weights_of(node: fx.Node, names: Sequence[str]) -> list[str]:
    """The weights that an operation uses: its module's, or parameters that it is given."""
    if node.op == "call_module":
        inside = f"{node.target}."
        return [name for name in names if name.startswith(inside)]
    given = [each.target for each in node.all_input_nodes if each.op == "get_attr"]
    return [name for name in names if name in given]
