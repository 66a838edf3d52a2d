"""The graph of a PyTorch model, found by `torch.export`."""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, export

from asterism.errors import InputError, one_line
from asterism.graph.capture.plain_attention import plain_attention
from asterism.graph.capture.recurrent_shapes import recurrent_shapes
from asterism.graph.capture.translation import Translation
from asterism.graph.network import Graph, Input
from asterism.weights.copies import copied


def capture(model: nn.Module, example_inputs: Tensor | Sequence[Tensor]) -> Graph:
    """The layers of `model`, in eval mode, for inputs like the example and batches of any size.

    >>> from asterism.experiments.networks import lenet300
    >>> [node.op for node in capture(lenet300(), torch.zeros(1, 1, 28, 28)).nodes]
    ['flatten', 'linear', 'relu', 'linear', 'relu', 'linear']
    """
    examples = _examples(example_inputs)
    # Tracing takes long: a model that shows at once that it is over tokens is traced once.
    shown = _shows_tokens(model, examples)
    longer = _for_any_length(model, examples) if shown else None
    if longer is not None:
        return longer
    graph = _captured(model, examples, [0] * len(examples))
    if not shown and _is_over_tokens(graph):
        return _for_any_length(model, examples) or graph
    return graph


def _for_any_length(model: nn.Module, examples: tuple[Tensor, ...]) -> Graph | None:
    """The layers for sequences of any length; None for a network that is not over tokens."""
    free = [_sequence(example) for example in examples]
    lengths = [example.shape[dim] for example, dim in zip(examples, free, strict=True) if dim]
    found = None
    for longer in _CHANGES.get(min(lengths), (0, -1)) if lengths else ():
        try:
            graph = _captured(model, examples, free, longer)
        except Exception:  # whatever says that this network is for one length alone
            continue
        if _is_over_tokens(graph):
            if any(each.free for each in graph.inputs):
                return graph
            found = found or graph
    return found


_CHANGES = {1: (2,), 2: (1,)}
"""By how much sequences are made longer for torch.export, by the shortest one of the examples. It
takes a length of one for a constant, two for the batch, and a length for fixed that is the whole
of a table or mask of which the network takes the beginning."""


def _shows_tokens(model: nn.Module, examples: tuple[Tensor, ...]) -> bool:
    """Whether a network takes ids, or has torch's own attention."""
    of_ids = any(not example.is_floating_point() for example in examples)
    return of_ids or any(isinstance(each, nn.MultiheadAttention) for each in model.modules())


def _is_over_tokens(graph: Graph) -> bool:
    """Whether all is known, and there is what only networks over sequences have."""
    return not graph.unknown and any(node.op in ("attention", "embedding") for node in graph.nodes)


def _sequence(example: Tensor) -> int:
    """The dimension along which tokens follow each other, or 0."""
    of_ids = not example.is_floating_point() and example.ndim == 2
    of_floats = example.is_floating_point() and example.ndim == 3
    return 1 if of_ids or (of_floats and example.shape[1] > 1) else 0


def _captured(
    model: nn.Module, examples: tuple[Tensor, ...], free: list[int], longer: int = 0
) -> Graph:
    """The layers for batches of any size.

    free    other dimensions that may vary, of each example: 0 is none
    longer  by how much these are longer here than in the examples
    """
    names = list(model.state_dict())
    batch = tuple(_zeros(x, dim, longer) for x, dim in zip(examples, free, strict=True))
    sizes = _by_parameter(model, [dict.fromkeys((0, dim), Dim.AUTO) for dim in free])
    model = copied(model).eval()
    try:
        with plain_attention(model), recurrent_shapes(), _quietly():
            program = export(model, batch, dynamic_shapes=sizes)
    except Exception as error:  # whatever a stranger's forward and torch's tracer may raise
        _check_that_it_runs(model, examples)
        raise InputError(
            f"torch.export cannot trace {type(model).__name__}: {one_line(error)}"
        ) from error
    inputs = tuple(Input(tuple(x.shape[1:]), not x.is_floating_point()) for x in examples)
    return Translation(program, names).graph(inputs)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what torch prints of an error that is told in one line here."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            # Of recurrent layers, which hold their weights in a list as well.
            warnings.filterwarnings("ignore", "The tensor attributes? self.*_flat_weights")
            yield
    finally:
        logger.disabled = before


def _check_that_it_runs(model: nn.Module, examples: tuple[Tensor, ...]) -> None:
    """The model's own error for these inputs, which says more than the tracer's."""
    try:
        with torch.no_grad():
            model(*examples)
    except Exception as error:
        raise InputError(
            f"{type(model).__name__} does not run on the example inputs: {one_line(error)}"
        ) from error


def _zeros(example: Tensor, dim: int, longer: int) -> Tensor:
    """Two examples, as torch.export takes a batch of one for a constant."""
    sizes = list(example.shape[1:])
    if dim:
        sizes[dim - 1] += longer
    return example.new_zeros(1, *sizes).expand(2, *sizes)


def _examples(given: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The example of each input, if they can be some."""
    examples = (given,) if isinstance(given, Tensor) else tuple(given)
    if not examples or not all(isinstance(example, Tensor) for example in examples):
        raise InputError("give a tensor as example input, or a tuple of one for each input")
    for example in examples:
        whole = example.dtype in _WHOLE and example.ndim > 1
        if not whole and (example.ndim < 2 or not example.is_floating_point()):
            raise InputError(
                "the example input must be a batch of floating-point numbers or of ids,"
                f" not {example.dtype} of shape {tuple(example.shape)}"
            )
    return tuple(example.detach() for example in examples)


def _by_parameter(model: nn.Module, sizes: list[Any]) -> tuple[Any, ...]:
    """What belongs to each input as torch.export wants it: all that `*args` takes together."""
    kinds = [each.kind for each in inspect.signature(model.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        return tuple(sizes)
    before = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    return (*sizes[:before], tuple(sizes[before:])) if len(sizes) > before else tuple(sizes)


_WHOLE = (torch.int64, torch.int32)
