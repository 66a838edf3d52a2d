"""A rebuilt network is the network; engines are timed in turn, each batch size by itself."""

from functools import partial

import numpy as np
import pytest
import torch

from asterism.errors import FormatError
from asterism.export import dense_engines as engines
from asterism.graph.network import Graph, Node
from asterism.graph.rebuild import Rebuilt
from support.networks import NETWORKS, graph_of, make, net_of


@pytest.mark.parametrize("name", NETWORKS)
def test_a_rebuilt_network_is_the_network(name: str) -> None:
    model, shape = make(name)
    tensors = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
    rebuilt = Rebuilt(graph_of(name), tensors)
    x = torch.randn(3, *shape)
    with torch.no_grad():
        torch.testing.assert_close(rebuilt(x), model(x))


def test_what_is_unknown_cannot_be_rebuilt() -> None:
    with pytest.raises(FormatError, match="aten.digamma"):
        Rebuilt(Graph((4,), (Node("aten.digamma.default", (0,)),)), {})


def test_engines_answer_with_several_results() -> None:
    class Both(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x + 1, x * 2

    x = np.ones((2, 3), np.float32)
    one, other = engines.eager(Both(), (x,), 1)(x)
    np.testing.assert_array_equal(one, x + 1)
    np.testing.assert_array_equal(other, x * 2)


def test_engines_are_compared_at_every_batch_size() -> None:
    model, shape = make("mlp")
    eager = engines.eager(model, (np.zeros((2, *shape), np.float32),), 1)
    rows = engines.compare(net_of(model, shape), {"torch": eager}, [1, 5], budget=0.01)
    found = [(row["batch"], row["engine"]) for row in rows]
    assert found == [(1, "asterism"), (1, "torch"), (5, "asterism"), (5, "torch")]
    assert all(row["microseconds_per_image"] > 0 and row["speed_up"] > 0 for row in rows)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param(None, marks=pytest.mark.slow)])
def test_every_engine_that_is_installed_answers_as_torch_does(
    backend: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.compile traces and differentiates; a C++ compiler is waited for in `make nightly`."""
    if backend:
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    model, shape = make("lenet5", 0.3)
    example = np.random.default_rng(0).random((2, *shape), np.float32)
    with torch.no_grad():
        truth = model.eval()(torch.from_numpy(example)).numpy()
    found = engines.find(model, (example,), 1)
    assert {"torch", "torch.compile", "onnxruntime"} <= set(found)
    for engine in found.values():
        for size in (1, 2):
            np.testing.assert_allclose(engine(example[:size]), truth[:size], rtol=1e-3, atol=1e-4)


def test_engines_take_several_inputs_and_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(7, 4)

        def forward(self, ids: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.table(ids)
            return hidden.mean(1) * scale

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    model = Scaled().eval()
    draw = np.random.default_rng(0)
    example = (draw.integers(0, 7, (2, 5)), draw.random((2, 4), np.float32))
    with torch.no_grad():
        truth = model(*map(torch.from_numpy, example)).numpy()
    found = engines.find(model, example, 1)
    assert {"torch", "torch.compile", "onnxruntime"} <= set(found)
    for engine in found.values():
        np.testing.assert_allclose(engine(*example), truth, rtol=1e-4, atol=1e-6)


def test_where_another_is_ahead_is_said_and_no_more() -> None:
    rows = [
        {"engine": "asterism", "batch": 1, "speed_up": 1.0},
        {"engine": "onnxruntime", "batch": 1, "speed_up": 3.0},
        {"engine": "mnn", "batch": 1, "speed_up": 0.8},
        {"engine": "litert", "batch": 16, "speed_up": 0.5},
    ]
    assert engines.ahead(rows) == [
        "litert is 2.00× faster at batch 16",
        "mnn is 1.25× faster at batch 1",
    ]
