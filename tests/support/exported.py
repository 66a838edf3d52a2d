"""Networks to export, with a batch and the runtime's answers: every operation, and random ones."""

from __future__ import annotations

import numpy as np

from asterism.export.steps.portable import portable
from asterism.export.steps.step import Portable
from asterism.runtime import Net
from support.operations import CASES, Case
from support.random_graphs import random_network

Networks = dict[str, tuple[Portable, np.ndarray, np.ndarray]]


def of_examples(speed: bool = False) -> Networks:
    found: Networks = {}
    for parameter in CASES:
        case = parameter.values[0]
        assert isinstance(case, Case)
        net = Net(case.graph, {str(i): weight for i, weight in enumerate(case.weights)})
        x = case.batch(3)
        name = str(parameter.id).replace("-", "_")
        found[f"of_{name}"] = portable(net.graph, net.weights, speed), x, net(x).reshape(3, -1)
    return found


def of_random(speed: bool = False) -> Networks:
    found: Networks = {}
    for seed in range(200):
        graph, weights = random_network(seed)
        net = Net(graph, {str(i): weight for i, weight in enumerate(weights)})
        x = np.random.default_rng(seed).standard_normal((2, *net.input_shape)).astype(np.float32)
        found[f"random_{seed}"] = portable(net.graph, net.weights, speed), x, net(x).reshape(2, -1)
    return found


def assert_close(found: np.ndarray, truth: np.ndarray, name: str, tolerance: float = 1e-5) -> None:
    finite = np.isfinite(truth)
    assert np.array_equal(np.isfinite(found), finite), name
    most = np.abs(truth[finite]).max(initial=1)
    np.testing.assert_allclose(found, truth, rtol=tolerance, atol=tolerance * most, err_msg=name)
