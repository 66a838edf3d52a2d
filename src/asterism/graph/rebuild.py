"""A graph and its weights as a torch module again, to be run by torch or exported from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from asterism.errors import FormatError
from asterism.graph.constants import settle
from asterism.graph.network import Graph
from asterism.graph.operations import OPERATIONS
from asterism.graph.shapes import infer


class RebuiltLayers(nn.Module):
    """Runs the layers of a graph one by one, as in evaluation.

    Convolutions, linear layers and batch norms are torch's own modules, so that `compact` knows
    them; other weights are buffers, in the graph's order.
    """

    def __init__(self, graph: Graph, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        super().__init__()
        if graph.unknown:
            raise FormatError(f"there is no operation {graph.unknown[0]} to rebuild")
        graph, weights = settle(graph, list(tensors.values()))
        self.inputs, self.nodes, self.outputs = graph.inputs, graph.nodes, graph.outputs
        self.weights = len(weights)
        self.functions: dict[int, Callable[..., Tensor]] = {}
        arrays = [torch.from_numpy(np.array(array)) for array in weights]
        params = [nn.Parameter(array, requires_grad=False) for array in arrays]
        # Without the batch: tracing must not ask the values for their shapes.
        shapes = infer(graph, weights)
        for number, node in enumerate(graph.nodes):
            seen = [shapes[value] for value in node.inputs]
            made = OPERATIONS[node.op].torch(torch, node, node.given(params), seen)
            if isinstance(made, nn.Module):
                self.add_module(f"layer{number}", made)
            else:
                self.functions[number] = made
        used = {place for number in self.functions for place in graph.nodes[number].weights}
        for place, array in enumerate(arrays):
            if place in used:
                self.register_buffer(f"w{place}", array)
        self.eval()

    def run(self, *inputs: Tensor) -> Any:
        """The network's results."""
        values = [*inputs]
        buffers = [getattr(self, f"w{place}", None) for place in range(self.weights)]
        for number, node in enumerate(self.nodes):
            read = [values[value] for value in node.inputs]
            if number in self.functions:
                values.append(self.functions[number](*read, *node.given(buffers)))
            else:
                values.append(getattr(self, f"layer{number}")(*read))
        results = tuple(values[value] for value in self.outputs)
        return results if len(results) > 1 else results[0]


class Rebuilt(RebuiltLayers):
    """A network with one input, as `compact` needs it: torch.fx follows no `*inputs`."""

    def forward(self, x: Tensor) -> Any:
        return self.run(x)


class RebuiltOfSeveral(RebuiltLayers):
    """A network with several inputs."""

    def forward(self, *inputs: Tensor) -> Any:
        given = len(self.inputs)
        return self.run(*(inputs[place] for place in range(given)))  # by number, for torch.fx


def rebuild(graph: Graph, weights: Sequence[npt.NDArray[Any]]) -> RebuiltLayers:
    """The module of a graph whose weights are in the graph's own order."""
    kind = Rebuilt if len(graph.inputs) == 1 else RebuiltOfSeveral
    return kind(graph, {str(place): array for place, array in enumerate(weights)})


def examples(graph: Graph, batch: int = 2) -> tuple[Tensor, ...]:
    """Zeros for each input of a graph."""
    kinds = [torch.long if each.integer else torch.float32 for each in graph.inputs]
    shapes = [each.shape for each in graph.inputs]
    each = zip(shapes, kinds, strict=True)
    return tuple(torch.zeros(batch, *shape, dtype=kind) for shape, kind in each)
