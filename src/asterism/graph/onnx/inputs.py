"""What an ONNX network takes: the sizes that its file leaves open, and where its batch is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from asterism.errors import InputError
from asterism.graph.network import Input
from asterism.graph.onnx.folding import kind_of
from asterism.graph.onnx.reading import Constant, plain
from asterism.graph.onnx.values import BATCH, Sizes, Value
from asterism.graph.operations.operation import UnsupportedError

Shapes = Mapping[str, Sequence[int]] | Sequence[int] | None
Fixed = Mapping[str, Any] | None


class Declared(NamedTuple):
    """An input as a file declares it; a size is a number, or the name that it has, or None."""

    name: str
    sizes: tuple[int | str | None, ...] | None
    kind: str

    @property
    def text(self) -> str:
        if self.sizes is None:
            return "of any number of dimensions"
        return f"({', '.join('?' if size is None else str(size) for size in self.sizes)})"


class Inputs(NamedTuple):
    """The inputs of a network.

    taken   as the graph has them
    known   what their names stand for: values, and the numbers of those that are fixed
    batch   the size of the batch, where the file fixes it, and else 0
    """

    taken: tuple[Input, ...]
    known: dict[str, Value | Constant]
    batch: int


def find_inputs(graph: Any, shapes: Shapes, fixed: Fixed) -> Inputs:
    """The inputs of ONNX's graph.

    shapes  of one example, by the inputs' names, or of the first input
    fixed   numbers in the place of inputs, by name
    """
    held = {each.name for each in graph.initializer}
    declared = [_declared(each) for each in graph.input if each.name not in held]
    constants = {name: plain(np.asarray(number)) for name, number in (fixed or {}).items()}
    open_ones = [each for each in declared if each.name not in constants]
    names = [each.name for each in declared]
    if not open_ones:
        raise InputError("the network has no input")
    given = shapes if isinstance(shapes, Mapping) else {}
    if shapes is not None and not isinstance(shapes, Mapping):
        given = {open_ones[0].name: shapes}
    for name in [*given, *constants]:
        if name not in names:
            raise InputError(f"the network has no input {name}, but {', '.join(names)}")
    return _numbered(open_ones, given, constants)


def _numbered(
    declared: Sequence[Declared], given: Mapping[str, Sequence[int]], fixed: dict[str, Constant]
) -> Inputs:
    sizes = declared[0].sizes
    batch = sizes[0] if sizes else None
    known: dict[str, Value | Constant] = dict(fixed)
    taken = []
    for number, each in enumerate(declared):
        axis = _batch_axis(each, batch)
        shape = _known_sizes(each, axis, given.get(each.name))
        known[each.name] = Value(number, (*shape[:axis], BATCH, *shape[axis:]), each.kind)
        taken.append(Input(shape, each.kind == "i"))
    return Inputs(tuple(taken), known, batch if isinstance(batch, int) else 0)


def _declared(each: Any) -> Declared:
    if not each.type.HasField("tensor_type"):
        raise InputError(f"the input {each.name} is no tensor")
    tensor = each.type.tensor_type
    try:
        kind = kind_of(tensor.elem_type)
    except UnsupportedError as error:
        raise InputError(f"the input {each.name} is {error}") from None
    if not tensor.HasField("shape"):
        return Declared(each.name, None, kind)
    sizes = tuple(
        dim.dim_value if dim.dim_value > 0 else dim.dim_param.strip("?") or None
        for dim in tensor.shape.dim
    )
    return Declared(each.name, sizes, kind)


def _batch_axis(declared: Declared, batch: int | str | None) -> int:
    """The first dimension, unless another has the size that is the batch of the first input."""
    sizes = declared.sizes
    if sizes is None:
        return 0
    if not sizes:
        raise InputError(
            f"the input {declared.name} is one number for all examples: fix it, as in"
            f" --fix {declared.name}=16000, or fixed={{'{declared.name}': 16000}} in Python"
        )
    if batch is not None and batch in sizes:
        return sizes.index(batch)
    return next((axis for axis, size in enumerate(sizes) if not isinstance(size, int)), 0)


def _known_sizes(declared: Declared, axis: int, given: Sequence[int] | None) -> Sizes:
    """The shape of one example, as the file has it and as it is given."""
    sizes = [None] * (1 + len(given or ())) if declared.sizes is None else list(declared.sizes)
    del sizes[axis]
    if given is None:
        known = [size for size in sizes if isinstance(size, int)]
        if declared.sizes is None or len(known) < len(sizes):
            raise InputError(
                f"the input {declared.name} is {declared.text}: give the shape of one example,"
                f" as in --shape {_like(sizes)}, or shape=[{_like(sizes)}] in Python"
            )
        return tuple(known)
    wanted = [n if isinstance(n, int) else int(g) for n, g in zip(sizes, given, strict=False)]
    if len(given) != len(sizes) or wanted != [int(size) for size in given] or min(given) < 1:
        raise InputError(
            f"the input {declared.name} is {declared.text}, batch included, which"
            f" {tuple(given)} for one example does not fit"
        )
    return tuple(wanted)


def _like(sizes: Sequence[int | str | None]) -> str:
    """An example of a shape."""
    return ",".join(str(size) if isinstance(size, int) else "224" for size in sizes)
