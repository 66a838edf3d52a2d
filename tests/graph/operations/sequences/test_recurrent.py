"""LSTM and GRU: what torch traces of them becomes layers that give the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._dispatch.python import enable_python_dispatcher
from torch.utils._pytree import tree_leaves

import asterism
import asterism.runtime.choice.cost as cost
from asterism.errors import FormatError, InputError
from asterism.graph.capture import capture
from asterism.graph.capture.recurrent_shapes import recurrent_shapes
from asterism.graph.compaction import compact
from asterism.graph.network import Graph, Node
from asterism.graph.rebuild import rebuild
from asterism.graph.shapes import infer
from asterism.runtime import Net, reference

KINDS = (nn.LSTM, nn.GRU)


class Tagger(nn.Module):
    """A recurrent network, with what is made of its results."""

    def __init__(self, kind: type[nn.RNNBase], head: Callable[..., Tensor], **options: Any) -> None:
        super().__init__()
        self.rnn, self.head = kind(5, 6, **options), head

    def forward(self, x: Tensor, *state: Tensor) -> Tensor:
        if not self.rnn.batch_first:
            x = x.transpose(0, 1)
        if state:
            first = tuple(each.transpose(0, 1).contiguous() for each in state)
            return self.head(self, *self.rnn(x, first if len(first) > 1 else first[0]))
        return self.head(self, *self.rnn(x))


def hidden(state: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    return state[0] if isinstance(state, tuple) else state


def batch_first(y: Tensor, self: Tagger) -> Tensor:
    return y if self.rnn.batch_first else y.transpose(0, 1)


HEADS: dict[str, Callable[..., Any]] = {
    "steps": lambda self, y, state: batch_first(y, self),
    "last": lambda self, y, state: y[:, -1] if self.rnn.batch_first else y[-1],
    "mean": lambda self, y, state: y.mean(1 if self.rnn.batch_first else 0),
    "relu": lambda self, y, state: batch_first(torch.relu(y), self),
    "hidden": lambda self, y, state: hidden(state)[-1],
    "flat": lambda self, y, state: hidden(state).permute(1, 0, 2).flatten(1),
    "both": lambda self, y, state: torch.cat([hidden(state)[-1], hidden(state)[0]], 1),
    "states": lambda self, y, state: (
        batch_first(y, self),
        *(s.transpose(0, 1) for s in (state if isinstance(state, tuple) else (state,))),
    ),
}
OPTIONS = [
    {"num_layers": layers, "bidirectional": both, "bias": bias, "batch_first": first}
    for layers, both, bias, first in [
        (1, False, True, True),
        (1, False, False, False),
        (1, True, True, True),
        (2, False, True, True),
        (2, True, False, True),
        (3, True, True, False),
    ]
]


def pruned(model: nn.Module, density: float, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    for param in model.parameters():
        param.data = torch.randn(param.shape, generator=generator) / 2
        if param.ndim > 1:
            param.data *= torch.rand(param.shape, generator=generator) < density
    return model.eval()


def arrays(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def assert_agrees(model: nn.Module, *inputs: np.ndarray) -> Net:
    """The runtime, numpy and the rebuilt network all answer as torch does."""
    tensors = [torch.from_numpy(x) for x in inputs]
    graph = capture(model, [x[:1] for x in tensors])
    net = Net(graph, arrays(model))
    truth = model(*tensors)
    run = reference.run(graph, net.shapes, net.weights, *inputs)
    for answer in (net(*inputs), run, rebuild(graph, net.weights)(*tensors)):
        several = [each if isinstance(each, tuple) else (each,) for each in (truth, answer)]
        for expected, found in zip(*several, strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(np.asarray(found), expected.detach(), rtol=1e-4, atol=1e-5)
    return net


def sequences(count: int, steps: int = 3, features: int = 5) -> np.ndarray:
    random = np.random.default_rng(count)
    return random.standard_normal((count, steps, features)).astype(np.float32)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda each: "-".join(map(str, each.values())))
@pytest.mark.parametrize("kind", KINDS)
def test_every_form_agrees_with_torch(kind: type[nn.RNNBase], options: dict[str, Any]) -> None:
    assert_agrees(pruned(Tagger(kind, HEADS["states"], **options), 0.5), sequences(5))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("first", [True, False])
def test_whole_networks_agree_with_torch(first: bool, head: str) -> None:
    kind = nn.LSTM if first else nn.GRU
    model = Tagger(kind, HEADS[head], bidirectional=True, batch_first=first)
    assert not assert_agrees(pruned(model, 0.5), sequences(1)).graph.unknown


@pytest.mark.parametrize("options", OPTIONS, ids=lambda each: "-".join(map(str, each.values())))
@pytest.mark.parametrize("kind", KINDS)
def test_the_short_cut_has_the_shapes_of_torch_and_leaves_its_numbers(
    kind: type[nn.RNNBase], options: dict[str, Any]
) -> None:
    """As torch computes them where it traces, by Python."""
    rnn, x = kind(5, 6, **options).eval(), torch.from_numpy(sequences(2))
    with enable_python_dispatcher(), torch.no_grad():
        truth = tree_leaves(rnn(x))
        with recurrent_shapes():
            short = tree_leaves(rnn(x))
        again = tree_leaves(rnn(x))
    assert [(each.shape, each.stride()) for each in short] == [
        (each.shape, each.stride()) for each in truth
    ]
    assert all(map(torch.equal, again, truth))


@pytest.mark.parametrize("options", [OPTIONS[0], OPTIONS[4]])
@pytest.mark.parametrize("kind", KINDS)
def test_a_network_may_be_given_its_state(kind: type[nn.RNNBase], options: dict[str, Any]) -> None:
    model = pruned(Tagger(kind, HEADS["states"], **options), 0.5)
    rows = options["num_layers"] * (2 if options["bidirectional"] else 1)
    states = [sequences(5, rows, 6) for _ in range(2 if kind is nn.LSTM else 1)]
    assert_agrees(model, sequences(5), *states)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("kernel", ["sparse", "dense"])
@pytest.mark.parametrize("kind", KINDS)
def test_kernels_agree_with_torch_at_every_size(
    kind: type[nn.RNNBase], kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = cost.recurrent
    choose = lambda *given: chosen(*given)._replace(kernel=kernel)  # noqa: E731
    monkeypatch.setattr(cost, "recurrent", choose)
    for units, steps, density in [(1, 1, 1.0), (8, 3, 0.0), (13, 40, 0.3), (50, 33, 0.05)]:
        rnn = pruned(kind(9, units, batch_first=True), density)
        layer = Node(kind.__name__.lower(), (0,), (0, 1, 2, 3))
        x = sequences(3, steps, 9)
        found = Net(Graph((steps, 9), (layer,)), arrays(rnn))(x)
        truth = rnn(torch.from_numpy(x))[0].detach()
        np.testing.assert_allclose(found, truth, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("steps", [32, 33, 70])
@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_a_long_sequence_carry_the_state(
    kind: type[nn.RNNBase], steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product of the inputs takes 32 steps at a time: forwards, backwards, from a state."""
    chosen = cost.over_rows
    choose = lambda *given: chosen(*given)._replace(kernel="rows")  # noqa: E731
    monkeypatch.setattr(cost, "over_rows", choose)
    model = pruned(Tagger(kind, HEADS["states"], bidirectional=True, batch_first=True), 0.5)
    assert_agrees(model, sequences(3, steps))
    states = [sequences(3, 2, 6) for _ in range(2 if kind is nn.LSTM else 1)]
    assert_agrees(model, sequences(3, steps), *states)


class First(nn.Module):
    """Of a recurrent network what it makes of the steps."""

    def __init__(self, rnn: nn.RNNBase) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 70), st.floats(0, 1), st.integers(0, 99))
def test_a_sparse_layer_over_rows_is_the_dense_one(
    rows: int, outputs: int, density: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    weight = random.standard_normal((outputs, 19)) * (random.random((outputs, 19)) < density)
    x = random.standard_normal((2, rows, 19)).astype(np.float32)
    weight = weight.astype(np.float32)
    net = Net(Graph((rows, 19), (Node("linear", (0,), (0,)), Node("relu", (1,)))), {"w": weight})
    np.testing.assert_allclose(net(x), np.maximum(x @ weight.T, 0), rtol=1e-4, atol=1e-5)


def test_large_states_saturate_and_do_not_overflow() -> None:
    rnn = nn.LSTM(5, 6, batch_first=True)
    for param in rnn.parameters():
        param.data *= 1e4
    assert_agrees(First(rnn.eval()), 1e3 * sequences(2))


def test_a_projection_is_refused_by_its_name() -> None:
    graph = capture(First(nn.LSTM(5, 6, proj_size=3, batch_first=True)), torch.zeros(1, 3, 5))
    assert graph.unknown == ("aten.lstm.input with proj_size",)


def test_a_result_with_the_batch_second_is_refused() -> None:
    model = Tagger(nn.GRU, lambda self, y, state: state, batch_first=True)
    with pytest.raises(InputError, match="batch as the second dimension"):
        capture(model, torch.zeros(1, 3, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_survives_its_file(kind: type[nn.RNNBase], tmp_path: Path) -> None:
    model = nn.Sequential(First(kind(5, 6, 2, batch_first=True)), nn.Linear(6, 3))
    model = pruned(model, 0.3)
    x = sequences(9)
    asterism.save(model, tmp_path / "net.asterism", example_inputs=(torch.from_numpy(x[:1]),))
    net = asterism.runtime.load(tmp_path / "net.asterism")
    truth = model(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(net(x), truth, rtol=1e-4, atol=1e-5)


def test_a_language_model_agrees_with_torch() -> None:
    layers = (nn.Embedding(11, 5), First(nn.LSTM(5, 6, batch_first=True)), nn.Linear(6, 11))
    model = pruned(nn.Sequential(*layers), 0.5)
    ids = np.random.default_rng(0).integers(0, 11, (5, 4))
    graph = capture(model, torch.from_numpy(ids[:1]))
    truth = model(torch.from_numpy(ids)).detach().numpy()
    np.testing.assert_allclose(Net(graph, arrays(model))(ids), truth, rtol=1e-4, atol=1e-5)


def test_compaction_leaves_recurrent_layers_as_they_are() -> None:
    model = pruned(nn.Sequential(nn.Linear(5, 5), First(nn.LSTM(5, 6)), nn.Linear(6, 3)), 0.2)
    small = compact(model).model
    x = torch.from_numpy(sequences(2))
    torch.testing.assert_close(small(x), model(x))
    assert small[1].rnn.weight_hh_l0.shape == (24, 6)


WEIGHTS = [(24, 5), (24, 6), (24,), (24,)]


@pytest.mark.parametrize(
    ("shape", "shapes", "count"),
    [
        ((7,), WEIGHTS, 4),
        ((0, 5), WEIGHTS, 4),
        ((7, 5, 1), WEIGHTS, 4),
        ((7, 4), WEIGHTS, 4),
        ((7, 5), [(24, 5), (24, 7), (24,), (24,)], 4),
        ((7, 5), [(24, 5), (23, 6), (24,), (24,)], 4),
        ((7, 5), [(24, 5), (24, 6), (23,), (24,)], 4),
        ((7, 5), [(0, 5), (0, 0), (0,), (0,)], 4),
        ((7, 5), [*WEIGHTS, (12, 5), (12, 3), (12,), (12,)], 8),
        ((7, 5), WEIGHTS, 1),
        ((2**25, 5), WEIGHTS, 4),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    shape: tuple[int, ...], shapes: list[tuple[int, ...]], count: int
) -> None:
    weights = [np.zeros(each, np.float32) for each in shapes]
    graph = Graph(shape, (Node("lstm", (0,), tuple(range(count))),))
    with pytest.raises(FormatError, match="lstm"):
        infer(graph, weights)


@pytest.mark.parametrize("inputs", [(0, 1), (0, 1, 1), (0, 0, 0), (0,) * 4])
def test_states_that_do_not_fit_are_refused(inputs: tuple[int, ...]) -> None:
    weights = [np.zeros(each, np.float32) for each in WEIGHTS]
    first = Node("reshape", (0,), settings=(5, 7))
    with pytest.raises(FormatError, match="lstm"):
        infer(Graph((7, 5), (first, Node("lstm", inputs, (0, 1, 2, 3)))), weights)
