"""Weights that are computed from weights, and graphs that claim such."""

from __future__ import annotations

import numpy as np
import pytest

from asterism.errors import FormatError
from asterism.graph.constants import settle
from asterism.graph.network import Graph, Node, decode, encode

WEIGHTS = [np.float32([[1, 2], [3, 4]]), np.float32([[2, 2], [0, 1]])]
WEIGHT, OTHER = Node("weight", (0,), (0,)), Node("weight", (0,), (1,))


def test_a_product_of_two_weights_is_one() -> None:
    graph = Graph((2,), (WEIGHT, OTHER, Node("mul", (1, 2)), Node("linear", (0,), (-3,))))
    plain, weights = settle(decode(encode(graph)), WEIGHTS)
    assert plain.nodes == (Node("linear", (0,), (2,)),)
    np.testing.assert_array_equal(weights[2], WEIGHTS[0] * WEIGHTS[1])


def test_one_that_two_layers_use_is_computed_once() -> None:
    twice = (WEIGHT, Node("tanh", (1,)), Node("linear", (0,), (-2,)), Node("linear", (3,), (-2,)))
    plain, weights = settle(Graph((2,), twice), WEIGHTS)
    assert [node.weights for node in plain.nodes] == [(2,), (2,)]
    assert len(weights) == 3


@pytest.mark.parametrize(
    "nodes",
    [
        (Node("relu", (0,)), Node("linear", (0,), (-1,))),
        (WEIGHT, Node("mul", (0, 1)), Node("linear", (0,), (-2,))),
        (Node("weight", (0,), (7,)), Node("linear", (0,), (-1,))),
        (WEIGHT, Node("weight_norm", (0,), (-1, 1)), Node("linear", (0,), (-2,))),
        (WEIGHT, Node("aten.digamma.default", (1,)), Node("linear", (0,), (-2,))),
        (Node("linear", (0,), (-1,)),),
    ],
)
def test_what_is_made_of_more_than_weights_is_refused(nodes: tuple[Node, ...]) -> None:
    with pytest.raises(FormatError):
        settle(Graph((2,), nodes), WEIGHTS)
