"""A short file cannot keep a machine busy, and a caller who trusts it can allow more."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from asterism.errors import FormatError
from asterism.file import write
from asterism.graph.network import Graph, Node, encode
from asterism.graph.shapes import infer
from asterism.graph.work import Work
from asterism.runtime import Net, load

CONV = {"weight": np.ones((4, 1, 3, 3), np.float32)}
VOLUME = {"weight": np.ones((4, 1, 3, 3, 3), np.float32)}


def padded(padding: int) -> Graph:
    return Graph((1, 3, 3), (Node("conv", (0,), (0,), {"padding_w": padding}),))


@pytest.mark.parametrize(
    ("graph", "tensors"),
    [
        (padded(8388608), CONV),
        (Graph((4,), (Node("pad", (0,), (), {"after": 2**27}),)), {}),
        (Graph((1, 4), (Node("resize", (0,), (), {"size": 2**27}),)), {}),
        (Graph((1, 1), (Node("expand", (0,), (), (2**13, 2**14)),)), {}),
        (
            Graph((1, 4, 4), (Node("conv_transpose", (0,), (0,), {"stride_w": 2**22}),)),
            {"weight": np.ones((1, 2, 3, 3), np.float32)},
        ),
        (
            Graph((1, 4, 4, 4), (Node("conv3d", (0,), (0,), {"padding_w": 2**22}),)),
            VOLUME,
        ),
        (
            Graph(
                (1, 4096, 4096),
                (Node("max_pool", (0,), (), {"kernel_h": 999, "kernel_w": 999, "stride_w": 1}),),
            ),
            {},
        ),
    ],
    ids=lambda each: each.nodes[0].op if isinstance(each, Graph) else "",
)
def test_much_work_of_few_bytes_is_refused_before_memory_is_taken(graph, tensors) -> None:
    assert len(encode(graph)) < 40
    tracemalloc.start()
    with pytest.raises(FormatError, match="max_work"):
        Net(graph, tensors)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**20


def test_who_trusts_a_file_may_allow_more(tmp_path: Path) -> None:
    path = tmp_path / "wide.asterism"
    write(path, CONV, graph=encode(padded(100_000)))
    net = load(path)
    with pytest.raises(FormatError, match="wide.asterism: up to layer 0 .conv. .* max_work"):
        load(path, max_work=10_000_000)
    x = np.ones((1, 1, 3, 3), np.float32)
    np.testing.assert_array_equal(load(path, max_work=10**9)(x), net(x))


def test_every_weight_is_counted_once_for_each_place() -> None:
    graph = Graph((1, 5, 5), (Node("conv", (0,), (0,)), Node("flatten", (1,)), Node("relu", (2,))))
    weight = np.zeros((2, 1, 3, 3), np.float32)
    weight[0, 0, 0] = 1
    shapes = infer(graph, [weight])
    pixels, places, results = 25, 9, 18
    exact = places * (3 + 1) + 16 * (pixels + 2 * results)  # and the one channel that is read
    Work.allowed([weight], exact).check(graph, shapes)
    with pytest.raises(FormatError, match=f"layer 2 .relu. .* takes {exact:,} multiply"):
        Work.allowed([weight], exact - 1).check(graph, shapes)


def test_a_large_input_counts_as_well() -> None:
    """Whoever makes an example of it would take the memory, however little is computed."""
    graph = Graph((3, 2**23, 7), (Node("mean", (0,), (), {"count": 2}),))
    with pytest.raises(FormatError, match="max_work"):
        Net(graph, {})


@pytest.mark.parametrize("shape", [(2**23, 2**25, 41, 0, 7), (0, 2**31 - 1, 2**31 - 1)])
def test_an_empty_input_of_many_dimensions_is_refused(shape: tuple[int, ...]) -> None:
    """It holds no number, and yet numpy cannot make it."""
    with pytest.raises(FormatError, match="impossible shape"):
        Net(Graph(shape, (Node("relu", (0,)),)), {})
