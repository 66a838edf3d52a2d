"""Every operation with its examples, for the tests that run over all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from asterism.graph.network import Graph, Input, Node
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.operation import Example, Operation


class Case(NamedTuple):
    operation: Operation
    example: Example

    @property
    def graph(self) -> Graph:
        given = iter(range(len(self.example.weights)))
        places = [None if shape is None else next(given) for shape in self.example.weights]
        inputs = (0,) * self.example.inputs
        node = Node(self.operation.name, inputs, places, self.example.settings)
        return Graph((Input(self.example.shape, self.example.integer),), (node,))

    @property
    def weights(self) -> list[np.ndarray]:
        """Positive, as a variance has to be, and those of layers pruned."""
        random = np.random.default_rng(0)
        shapes = [shape for shape in self.example.weights if shape is not None]
        arrays = [random.uniform(0.2, 2, shape).astype(np.float32) for shape in shapes]
        return [a * (random.random(a.shape) < 0.5) if a.ndim > 1 else a for a in arrays]

    def batch(self, size: int) -> np.ndarray:
        random = np.random.default_rng(size)
        if self.example.integer:
            return random.integers(0, len(self.weights[0]), (size, *self.example.shape))
        return 3 * random.standard_normal((size, *self.example.shape)).astype(np.float32)


CASES = [
    pytest.param(Case(operation, example), id=f"{operation.name}-{number}")
    for operation in OPERATIONS.values()
    for number, example in enumerate(operation.examples)
]
