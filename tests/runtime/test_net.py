"""Whole networks, and what a caller may do wrong."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import asterism.kernels.library as library
from asterism.errors import FormatError, InputError
from asterism.file import write
from asterism.graph.network import Graph, Node, decode, encode
from asterism.runtime import Net, load
from asterism.runtime.sized import Sized
from asterism.runtime.steps import KernelPlan
from support.networks import NETWORKS, answer, arrays_of, graph_of, make, net_of

TENSORS = {"weight": np.ones((3, 4), np.float32), "bias": np.zeros(3, np.float32)}
SMALL = Graph((4,), (Node("linear", (0,), (0, 1)),))


@pytest.mark.parametrize("density", [0.0, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_answer_as_torch_does(name: str, density: float) -> None:
    model, shape = make(name, max(density, 1e-9))
    net = Net(graph_of(name), arrays_of(model))
    for batch in (0, 1, 2, 7, 33):
        x = torch.randn(batch, *shape)
        truth = answer(model, x)
        found = net(x.numpy())
        assert found.shape == truth.shape
        np.testing.assert_allclose(
            found, truth, rtol=1e-4, atol=1e-5 * max(1, np.abs(truth).max(initial=0))
        )


@pytest.mark.parametrize("name", ["lenet5", "tangle"])
@pytest.mark.parametrize("least", [1, 5, 32])
def test_threads_and_callers_do_not_disturb_each_other(
    name: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KernelPlan, "least", least)
    model, shape = make(name)
    one, two = net_of(model, shape), net_of(model, shape, threads=3)
    batches = [
        np.random.default_rng(i).random((n, *shape), np.float32)
        for i, n in enumerate([300, 1, 64, 7, 35])
    ]
    truth = [one(x) for x in batches]
    with ThreadPoolExecutor(4) as pool:
        for found, expected in zip(pool.map(two, batches * 8), truth * 8, strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("batch", [1, 40])
def test_what_is_not_finite_spreads_as_in_torch(bad: float, batch: int) -> None:
    model, shape = make("lenet5", 0.02)
    x = torch.rand(batch, *shape)
    x[0, 0, 3, 4] = bad
    with torch.no_grad():
        truth = model(x).numpy()
    np.testing.assert_allclose(net_of(model, shape)(x.numpy()), truth, rtol=1e-4, atol=1e-5)


def test_other_memory_and_floats_are_converted() -> None:
    net, x = Net(SMALL, TENSORS), np.random.default_rng(0).random((6, 4))
    expected = net(x.astype(np.float32))
    np.testing.assert_array_equal(net(x), expected)
    np.testing.assert_array_equal(net(np.asfortranarray(x.astype(np.float32))), expected)
    np.testing.assert_array_equal(
        net(torch.from_numpy(x.astype(np.float32)).numpy()[::-1]), expected[::-1]
    )


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 5), np.float32), r"shape \(N, 4\), not \(2, 5\)"),
        (np.zeros(4, np.float32), r"shape \(N, 4\)"),
        (np.zeros((2, 2, 2), np.float32), r"shape \(N, 4\)"),
        (np.zeros((2, 4), np.int64), "int64"),
        (np.float32(1), "a batch"),
        ("four", "floating-point"),
    ],
)
def test_a_wrong_input_is_refused(x: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Net(SMALL, TENSORS)(x)


HOSTILE = [
    Graph((5,), SMALL.nodes),
    Graph((4,), (Node("linear", (0,), (0, 7)),)),
    Graph((4,), (Node("linear", (0,), (1, 0)),)),
    Graph((4,), (Node("linear", (3,), (0, 1)),)),
    Graph((4,), (Node("linear", (0,), (None, 1)),)),
    Graph((4,), ()),
    Graph((4,), (Node("reshape", (0,), settings=(5,)),)),
    Graph((4,), (Node("reshape", (0,), settings=(-2, -2)),)),
    Graph((4,), (Node("permute", (0,), settings=(3,)),)),
    Graph((4,), (Node("softmax", (0,), settings={"dim": -4}),)),
    Graph((4,), (Node("cat", (0, 0), settings={"dim": 9}),)),
    Graph((4,), (Node("cat", ()),)),
    Graph((4,), (Node("add", (0,)),)),
    Graph((4,), (Node("flatten", (0,), settings={"start": -3}),)),
    Graph((2**31 - 1, 2**31 - 1), (Node("relu", (0,)),)),
    Graph((1, 8, 8), (Node("max_pool", (0,), settings={"kernel_h": 9}),)),
    Graph((1, 8, 8), (Node("max_pool", (0,), settings={"stride_h": -1}),)),
    Graph((1, 8, 8), (Node("adaptive_avg_pool", (0,), settings={"size_h": 2**30}),)),
    Graph((1, 8, 8), (Node("batch_norm", (0,), (1, 1, 1, 1)),)),
]


@pytest.mark.parametrize("graph", HOSTILE)
def test_a_graph_that_lies_is_refused(graph: Graph) -> None:
    with pytest.raises(FormatError):
        Net(graph, TENSORS)


@pytest.mark.parametrize("op", ["softmax", "tanh", "add"])
def test_values_that_are_too_large_together_take_no_memory(op: str) -> None:
    """Each of them fits; a few dozen bytes must not take gigabytes before they are refused."""
    arity = 2 if op == "add" else 1
    nodes = tuple(Node(op, (place,) * arity) for place in range(20))
    data = encode(Graph((2**14, 2**14), nodes))
    assert len(data) < 80
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="the values up to layer 1 .* smaller inputs"):
            Net(decode(data), {})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_views_of_one_value_are_counted_once() -> None:
    nodes = tuple(Node("reshape", (place,), settings=(2**13, 2**13)) for place in range(20))
    assert Net(Graph((2**26,), nodes), {}, max_work=2**31).output_shape == (2**13, 2**13)


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_graph_is_refused_or_runs(data: st.DataObject) -> None:
    model, _ = make("separable")
    damaged = bytearray(_encoded())
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(1, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    try:
        net = Net(decode(bytes(damaged)), tensors)
    except FormatError:
        return
    if np.prod(net.input_shape) < 10**6 and max(map(np.prod, net.shapes)) < 10**6:
        for batch in (2, 5):  # which has a plan of its own
            net(np.zeros((batch, *net.input_shape), np.float32))


def _encoded() -> bytes:
    from asterism.graph.capture import capture

    if not _CACHE:
        model, shape = make("separable")
        _CACHE.append(encode(capture(model, torch.zeros(1, *shape))))
    return _CACHE[0]


_CACHE: list[bytes] = []


def test_the_plan_is_explained() -> None:
    model, shape = make("lenet5", 0.02)
    net = net_of(model, shape)
    for text in (
        net.explain(),
        net.explain(np.zeros((1, *shape), np.float32)),
        net.explain(np.zeros((40, *shape))),
    ):
        assert "conv + max_pool" in text
        assert "linear + relu" in text
        assert "sparse" in text
    dense = net_of(*make("lenet300", 1.0))
    assert "dense" in dense.explain()


def test_only_what_runs_by_a_plan_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, shape = make("lenet5", 0.02)
    net, timed, profile = net_of(model, shape), [], Sized.profile
    if library.load() is None:
        pytest.skip("no plan")

    def watched(self: Sized, x: np.ndarray, many: bool) -> list[float]:
        timed.append((len(x), many))
        return profile(self, x, many)

    monkeypatch.setattr(Sized, "profile", watched)
    for batch in (1, 3, 31, 33, 36):
        net.explain(np.zeros((batch, *shape), np.float32))
    assert set(timed) == {(1, False), (3, False), (31, True), (32, True), (36, True)}


def test_weights_are_those_it_was_made_with() -> None:
    weight = np.float32([[1, 2], [3, 4]])
    net = Net(Graph((2,), (Node("linear", (0,), (0,)),)), {"weight": weight})
    weight *= 2
    x = np.random.default_rng(0).random((9, 2), np.float32)
    np.testing.assert_allclose(net(x), np.concatenate([net(row[None]) for row in x]), rtol=1e-6)
    np.testing.assert_allclose(net(x), x @ (weight / 2).T, rtol=1e-6)


@pytest.mark.parametrize(
    ("size", "extent", "settings"),
    [
        (1, 1, {"stride_h": 2**26, "padding_h": 2**26}),
        (2, 9, {"stride_h": 2**28, "dilation_h": 2**28, "padding_h": 2**30 + 1}),
    ],
)
def test_a_stride_beyond_the_image_takes_no_memory(
    size: int, extent: int, settings: dict[str, int]
) -> None:
    weight = np.ones((8, 8, extent, 1), np.float32)
    net = Net(Graph((8, size, 1), (Node("conv", (0,), (0,), settings),)), {"weight": weight})
    assert not net(np.zeros((5, 8, size, 1), np.float32)).any()


def test_dead_units_are_not_computed() -> None:
    model, shape = make("lenet5", 0.5)
    model.fc2.weight.data[:, 7] = 0
    model.fc1.weight.data[:, :160] = 0
    net = net_of(model, shape)
    by_place = {layer.place: layer for layer in net.layers}
    assert not by_place[5].needed[7]
    assert not by_place[2].needed[:10].any()
    x = torch.randn(5, *shape)
    np.testing.assert_allclose(net(x.numpy()), answer(model, x), rtol=1e-4, atol=1e-4)


def test_what_only_dead_layers_read_is_not_computed() -> None:
    """A pooling that needs all of its input needs none of it where nothing reads the pooling."""
    pool = Node("max_pool", (1,), settings={"kernel_h": 2, "kernel_w": 2, "stride_h": 1})
    nodes = (Node("conv", (0,), (0,)), pool, Node("flatten", (2,)), Node("linear", (3,), (1, 2)))
    tensors = {"conv": np.ones((2, 1, 1, 1)), "fc": np.zeros((3, 12)), "bias": np.arange(3)}
    net = Net(Graph((1, 4, 4), nodes), tensors)
    np.testing.assert_array_equal(net(np.ones((5, 1, 4, 4), np.float32))[4], [0, 1, 2])
    if library.load() is not None:
        assert [layer.node.op for layer in net.layers] == ["linear"]


def test_a_plan_is_not_measured_on_a_wrong_input() -> None:
    model, shape = make("mlp", 0.5)
    with pytest.raises(InputError, match="the input must have the shape"):
        net_of(model, shape).explain(np.zeros((5, 3), np.float32))


def test_a_network_in_bfloat16_is_run_as_its_numbers(tmp_path: Path) -> None:
    model, shape = make("mlp", 0.5)
    with torch.no_grad():
        for param in model.parameters():
            param.copy_(param.bfloat16().float())
    net, path = net_of(model, shape), tmp_path / "net.asterism"
    x = np.random.default_rng(0).standard_normal((3, *net.input_shape)).astype(np.float32)
    state = {name: tensor.bfloat16() for name, tensor in model.state_dict().items()}
    names = [name for name, tensor in state.items() if tensor.is_floating_point()]
    write(
        path,
        {name: tensor.view(torch.uint16).numpy() for name, tensor in state.items()},
        graph=encode(net.graph),
        dtypes=dict.fromkeys(names, "bfloat16"),
    )
    np.testing.assert_array_equal(load(path)(x), net(x))


@pytest.mark.skipif(library.load() is None, reason="the kernels are not built")
def test_a_library_of_another_version_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    library._load.cache_clear()
    monkeypatch.delenv("ASTERISM_LIBRARY", raising=False)
    monkeypatch.setattr(library, "INTERFACE", library.INTERFACE + 1)
    with pytest.warns(UserWarning, match="install asterism again"):
        assert library.load() is None
    library._load.cache_clear()


def test_a_network_prints_what_it_takes_and_how_sparse_it_is() -> None:
    graph = Graph((2,), (Node("linear", (0,), (0,)), Node("relu", (1,))))
    net = Net(graph, {"weight": np.float32([[1, 0], [0, -1], [0, 0]])}, threads=2)
    assert repr(net).startswith("Net((N, 2) → (N, 3); 2 of 6 weights; ")
    assert repr(net).endswith(", 2 threads)")
