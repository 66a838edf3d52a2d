"""Kernels chosen by measuring: the same answers, and no plan that is far from the best."""

from __future__ import annotations

import numpy as np
import pytest

import asterism.kernels.library as library
import asterism.runtime.choice.cost as cost
from asterism.errors import InputError
from asterism.graph.network import Graph, Node
from asterism.runtime import Net

pytestmark = pytest.mark.skipif(library.load() is None, reason="the kernels are not built")

INPUTS = np.random.default_rng(1).standard_normal((40, 8, 12, 12)).astype(np.float32)


def small_network() -> Net:
    """Convolutions, sparse and dense, a depthwise one with neighbours, and a linear layer."""
    random = np.random.default_rng(0)
    around = {"padding_h": 1, "padding_w": 1}
    nodes = (
        Node("conv", (0,), (0,), around),
        Node("relu", (1,)),
        Node("conv", (2,), (1,), {**around, "groups": 8}),
        Node("conv", (3,), (2,)),
        Node("conv", (4,), (3,), around),
        Node("flatten", (5,)),
        Node("linear", (6,), (4,)),
    )
    shapes = [(8, 8, 3, 3), (8, 1, 3, 3), (8, 8, 1, 1), (16, 8, 3, 3), (10, 16 * 144)]
    weights = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    for weight, density in zip(weights, (0.1, 1, 1, 0.05, 0.02), strict=True):
        weight *= random.random(weight.shape) < density
    return Net(Graph((8, 12, 12), nodes), {str(i): each for i, each in enumerate(weights)})


@pytest.mark.usefixtures("level")
def test_a_tuned_network_answers_as_before() -> None:
    net = small_network()
    batches = [INPUTS[:count] for count in (1, 3, 16, 40)]
    before = [net(x) for x in batches]
    net.tune(16)
    for x, y in zip(batches, before, strict=True):
        np.testing.assert_allclose(net(x), y, rtol=1e-4, atol=1e-4)
    net.explain(INPUTS)
    net.tune()  # once more: from the plans that it has


def test_a_wrong_prediction_is_set_right() -> None:
    """A hundredth of a large matrix is many times faster by its non-zeros."""
    weight = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
    weight *= np.random.default_rng(1).random(weight.shape) < 0.01
    graph = Graph((1024,), (Node("linear", (0,), (0,)),))
    wrong = cost.Machine({"image sparse": 1000.0, "block sparse": 1000.0})
    with cost.planning_for(wrong):
        net = Net(graph, {"weight": weight})
        assert [plan.choices[0].kernel for plan in net.plans] == ["dense", "dense"]
    net.tune()
    assert [plan.choices[0].kernel for plan in net.plans] == ["sparse", "sparse"]


def test_a_batch_of_single_examples_is_refused() -> None:
    with pytest.raises(InputError, match="batch must be 4 or more, got 1"):
        small_network().tune(1)
