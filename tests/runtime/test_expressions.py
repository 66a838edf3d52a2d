"""What people write between layers, captured and run: as torch computes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from asterism.graph.capture import capture
from asterism.graph.network import Graph, Node, decode, encode
from asterism.runtime import Net
from support.networks import answer, arrays_of, net_of


class Expression(nn.Module):
    """One, with weights and a buffer to use."""

    def __init__(self, of: Callable[[Expression, Tensor], Tensor]) -> None:
        super().__init__()
        self.of = of
        torch.manual_seed(0)
        self.channel = nn.Parameter(torch.rand(8, 1, 1) + 0.5)
        self.token = nn.Parameter(torch.randn(1, 1, 6))
        self.single = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("mean", torch.randn(1, 8, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.of(self, x)


EXPRESSIONS: dict[str, Callable[[Expression, Tensor], Tensor]] = {
    "numbers": lambda m, x: 3 - (x / 255 - 0.5) * 2 + 1,
    "negative": lambda m, x: -x.add(x, alpha=0.5).sub(2, alpha=3),
    "buffer": lambda m, x: (x - m.mean) / m.channel,
    "weight first": lambda m, x: m.channel - x * m.single,
    "weight of weights": lambda m, x: x * (m.channel * m.single + m.mean),
    "excitation": lambda m, x: x * x.mean((2, 3), keepdim=True).sigmoid(),
    "spread": lambda m, x: x + x[:, :1] - x[:, :, 1:2] + x[..., -1:],
    "both spread": lambda m, x: x[:, :, :1] * x[:, :, :, :1] + torch.maximum(x, x[:, 3:4]),
    "strided slice": lambda m, x: x[:, 1::3, ::2, -4:-1],
    "select": lambda m, x: x[:, 3] + x.select(2, -1).sum(1, keepdim=True),
    "narrow": lambda m, x: x.narrow(1, 2, 5),
    "chunk": lambda m, x: x.chunk(2, 1)[1] - x.chunk(2, 1)[0],
    "split": lambda m, x: torch.cat(x.split([3, 1, 4], 1)[::-1], 1),
    "unbind": lambda m, x: x.unbind(2)[1] + x.unbind(2)[-1],
    "means": lambda m, x: x.mean(1) + x.mean((1, 3))[:, :, None] + x.mean(-1, keepdim=True).mean(1),
    "sum": lambda m, x: x.sum((1, 3), keepdim=True) + x.sum(2).unsqueeze(2),
    "transposed": lambda m, x: x.mT.swapaxes(1, 3),
    "class token": lambda m, x: torch.cat([m.token.expand(x.shape[0], -1, -1), x[:, 0]], 1),
    "position": lambda m, x: x[:, 0] + m.token,
    "expanded": lambda m, x: x[:, :1].expand(-1, 8, -1, -1) * x.mean(1, keepdim=True).expand_as(x),
    "shuffled": lambda m, x: nn.functional.pixel_unshuffle(nn.functional.pixel_shuffle(x, 2), 3),
    "log softmax": lambda m, x: (5 * x).log_softmax(1) + torch.minimum(x, -x).log_softmax(-1),
    "constant": lambda m, x: x * 0 + (m.channel + m.channel).expand(x.shape),
}


def check(model: nn.Module, shape: tuple[int, ...], net: Net) -> None:
    for batch in (1, 3, 40):
        x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(batch))
        truth, found = answer(model, x), net(x.numpy())
        assert found.shape == truth.shape
        near = 1e-5 * max(1, np.abs(truth).max(initial=0))
        np.testing.assert_allclose(found, truth, rtol=1e-4, atol=near)


@cache
def captured(name: str) -> Graph:
    """The same for every kind of kernel."""
    return capture(Expression(EXPRESSIONS[name]), torch.zeros(1, 8, 6, 6))


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_are_those_of_torch(name: str, level: str) -> None:
    model = Expression(EXPRESSIONS[name])
    net = Net(captured(name), arrays_of(model))
    assert decode(encode(net.graph)) == net.graph
    assert level == "none" or "runs in numpy" not in net.explain()
    check(model, (8, 6, 6), net)


def test_numbers_one_after_the_other_are_one_layer() -> None:
    assert [node.op for node in captured("numbers").nodes] == ["scale_shift"]


@given(st.data())
def test_any_two_shapes_that_fit_are_combined(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    ones = [data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))] * 2
    ones[1] = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    shapes = [tuple(1 if o else n for o, n in zip(one, shape, strict=True)) for one in ones]
    random = np.random.default_rng(0)
    op = data.draw(st.sampled_from(["add", "mul", "sub", "div", "maximum", "minimum"]))
    weights = [random.uniform(0.5, 2, each).astype(np.float32) for each in shapes]
    nodes = (Node("weight", (0,), (0,)), Node("weight", (0,), (1,)), Node(op, (1, 2)))
    net = Net(Graph((1,), nodes), {"0": weights[0], "1": weights[1]})
    numpy_op = {"mul": np.multiply, "sub": np.subtract, "div": np.divide}
    truth = numpy_op.get(op, getattr(np, op, None))(*weights)
    found = net(np.zeros((5, 1), np.float32))
    np.testing.assert_allclose(found, np.broadcast_to(truth, (5, *truth.shape)), rtol=1e-6)


@pytest.mark.parametrize("make", [nn.Linear, lambda i, o: nn.Conv1d(i, o, 3)])
def test_a_weight_that_is_computed_from_weights_is_computed_when_a_network_is_loaded(make) -> None:
    first = weight_norm(make(8, 6)) if make is nn.Linear else weight_norm(make(8, 6), dim=1)
    model = nn.Sequential(first, nn.ReLU())
    shape = (8,) if make is nn.Linear else (8, 9)
    net = net_of(model, shape)
    assert [node.op for node in net.graph.nodes][1:] == ["relu"]
    check(model, shape, net)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 8))
        self.register_buffer("mask", (torch.rand(6, 8) < 0.5).float())

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight * self.mask).relu()


def test_a_weight_with_a_mask_is_pruned_when_a_network_is_loaded() -> None:
    torch.manual_seed(0)
    model = Masked()
    net = net_of(model, (8,))
    assert [node.op for node in net.graph.nodes] == ["linear", "relu"]
    kept = net.weights[net.graph.nodes[0].weights[0]]
    np.testing.assert_array_equal(kept != 0, model.mask != 0)
    check(model, (8,), net)
