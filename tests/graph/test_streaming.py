"""Sequences that come in parts have the same answers as whole ones."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from asterism.errors import InputError
from asterism.graph.capture import capture
from asterism.graph.network import Graph, Node
from asterism.runtime import Net


class Speech(nn.Module):
    """An LSTM and a GRU, of which each step, the last or the mean is read."""

    def __init__(self, reads: str, both: bool = False) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 6, 2, batch_first=True)
        self.gru = nn.GRU(6, 7, batch_first=True, bidirectional=both)
        self.norm, self.head, self.reads = nn.LayerNorm(6), nn.Linear(7 + 7 * both, 3), reads

    def forward(self, x: Tensor) -> Tensor:
        y = self.gru(self.norm(torch.tanh(self.lstm(x)[0])))[0]
        if self.reads == "last":
            return self.head(y[:, -1])
        return self.head(y.mean(1) if self.reads == "mean" else y).softmax(-1)


def captured(model: Speech) -> Net:
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return Net(_graph(model.reads, model.gru.bidirectional), tensors)


@cache
def _graph(reads: str, both: bool) -> Graph:
    with torch.random.fork_rng():
        return capture(Speech(reads, both).eval(), torch.zeros(1, 2, 5))


def sequences(steps: int, count: int = 3) -> np.ndarray:
    return np.random.default_rng(steps).standard_normal((count, steps, 5)).astype(np.float32)


@pytest.mark.parametrize("reads", ["steps", "last"])
def test_parts_have_the_answers_of_the_whole(reads: str) -> None:
    model = Speech(reads).eval()
    net, x = captured(model), sequences(12)
    truth = model(torch.from_numpy(x)).detach().numpy()
    state, made = None, []
    for begin, end in [(0, 1), (1, 8), (8, 12)]:
        y, state = net.stream(x[:, begin:end], state)
        made.append(y)
    found = made[-1] if reads == "last" else np.concatenate(made, 1)
    np.testing.assert_allclose(found, truth, rtol=1e-4, atol=1e-5)


def test_a_state_belongs_to_its_sequence() -> None:
    net, x = captured(Speech("steps").eval()), sequences(6)
    _, state = net.stream(x[:, :3])
    alone, _ = net.stream(x[1:2, 3:], [each[1:2] for each in state])
    np.testing.assert_allclose(alone, net.stream(x[:, 3:], state)[0][1:2], rtol=1e-5, atol=1e-6)


def test_what_needs_the_whole_sequence_is_refused() -> None:
    with pytest.raises(InputError, match="mean"):
        captured(Speech("mean").eval()).stream(sequences(4))
    with pytest.raises(InputError, match="backwards"):
        captured(Speech("steps", both=True).eval()).stream(sequences(4))
    weight = {"weight": np.zeros((3, 5), np.float32)}
    with pytest.raises(InputError, match="no recurrent layer"):
        Net(Graph((4, 5), (Node("linear", (0,), (0,)),)), weight).stream(sequences(4))


def test_inputs_and_states_of_other_shapes_are_refused() -> None:
    net = captured(Speech("steps").eval())
    y, state = net.stream(sequences(4))
    assert y.shape == (3, 4, 3)
    for wrong in (state[:-1], [*state, state[0]], [each[:2] for each in state]):
        with pytest.raises(InputError, match="the state must be arrays of the shapes"):
            net.stream(sequences(4), wrong)
    with pytest.raises(InputError, match="floating-point"):
        net.stream(sequences(4), [each.astype(np.int64) for each in state])
    for not_state in (5, state[0]):
        with pytest.raises(InputError, match="what the call before returned"):
            net.stream(sequences(4), not_state)  # type: ignore[arg-type]
    for bad in (sequences(4)[:, :, :4], sequences(4)[:, :0], sequences(4)[0]):
        with pytest.raises(InputError, match=r"shape \(N, steps, 5\)"):
            net.stream(bad)
