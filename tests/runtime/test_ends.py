"""Networks with several inputs and outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import asterism
import asterism.runtime
from asterism.errors import FormatError, InputError
from asterism.graph.network import Graph, Input, Node
from asterism.runtime import Net


class TwoEnds(nn.Module):
    """Two inputs; of the outputs one is read again, one is there twice, and one is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 5), nn.Linear(6, 5)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        hidden = torch.relu(self.one(x))
        both = hidden + self.two(y.flatten(1))
        return both, hidden, both.softmax(-1), x, both, y.flatten(1)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[nn.Module, Net]:
    torch.manual_seed(0)
    model = TwoEnds()
    model.two.weight.data *= torch.rand_like(model.two.weight) < 0.3
    path = tmp_path / "net.asterism"
    asterism.save(model, path, example_inputs=(torch.zeros(1, 4), torch.zeros(1, 2, 3)))
    return model.eval(), asterism.runtime.load(path)


@pytest.mark.parametrize("batch", [0, 1, 3, 5, 33, 100])
def test_all_outputs_are_those_of_torch(saved: tuple[nn.Module, Net], batch: int) -> None:
    model, net = saved
    x, y = torch.randn(batch, 4), torch.randn(batch, 2, 3)
    found = net(x.numpy(), y.numpy())
    assert isinstance(found, tuple)
    for answer, truth in zip(found, model(x, y), strict=True):
        np.testing.assert_allclose(answer, truth.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_what_is_not_finite_spreads_as_in_torch(saved: tuple[nn.Module, Net]) -> None:
    model, net = saved
    x, y = torch.randn(7, 4), torch.randn(7, 2, 3)
    y[3, 1, 1] = np.nan
    for answer, truth in zip(net(x.numpy(), y.numpy()), model(x, y), strict=True):
        np.testing.assert_allclose(answer, truth.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_one_output_of_two_inputs_is_an_array() -> None:
    graph = Graph((Input((3,)), Input((3,))), (Node("add", (0, 1)), Node("relu", (2,))))
    x, y = np.random.default_rng(0).standard_normal((2, 9, 3)).astype(np.float32)
    np.testing.assert_allclose(Net(graph, {})(x, y), np.maximum(x + y, 0), rtol=1e-6)


ONE = np.zeros((2, 4), np.float32)
TWO = np.zeros((2, 2, 3), np.float32)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((ONE,), "takes 2 inputs, not 1"),
        ((ONE, TWO, TWO), "takes 2 inputs, not 3"),
        ((ONE, TWO[:1]), r"one size, not of \[2, 1\]"),
        ((ONE, ONE), r"input 2 must have the shape \(N, 2, 3\), not \(2, 4\)"),
        ((ONE, TWO.astype(int)), "input 2 must be of floating-point numbers, not int64"),
    ],
)
def test_wrong_inputs_are_refused(
    saved: tuple[nn.Module, Net], inputs: tuple[np.ndarray, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        saved[1](*inputs)


def test_the_plan_is_explained(saved: tuple[nn.Module, Net]) -> None:
    _, net = saved
    assert "linear + relu" in net.explain()
    assert "linear + relu" in net.explain(np.zeros((40, 4), np.float32), np.zeros((40, 2, 3)))


@pytest.mark.parametrize("outputs", [(7,), (-1,), (1, 2, 9)])
def test_an_output_that_does_not_exist_is_refused(outputs: tuple[int, ...]) -> None:
    with pytest.raises(FormatError, match="an output"):
        Net(Graph((4,), (Node("relu", (0,)), Node("tanh", (1,))), outputs), {})
