"""Networks of 8 bits: C computes what numpy says it does, bit by bit, and near what floats do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asterism.cli.source import examples_of
from asterism.errors import InputError
from asterism.export.c.source import sources
from asterism.export.steps.quantised import Quantised, quantised
from asterism.export.steps.scales import fixed_point
from asterism.graph.network import Graph, Input, Node
from asterism.runtime import Net, load
from support.compiled_c import needs_compiler, run
from support.paths import ROOT

RECORD = ROOT / "experiments/file/lenet5-record@1239-0.asterism"
HALVES = {"kernel_h": 2, "kernel_w": 2}


def sparse(random: np.random.Generator, *shape: int) -> np.ndarray:
    weight = random.standard_normal(shape) * (random.random(shape) < 0.4)
    return weight.astype(np.float32)


def plain(random: np.random.Generator) -> tuple[Graph, list[np.ndarray]]:
    nodes = Node("linear", (0,), (0, 1)), Node("relu", (1,)), Node("linear", (2,), (2,))
    biases = random.standard_normal(15).astype(np.float32)
    return Graph((9,), nodes), [sparse(random, 15, 9), biases, sparse(random, 4, 15)]


def padded(random: np.random.Generator) -> tuple[Graph, list[np.ndarray]]:
    """Padding, strides, dilation, groups, a pooling that is merged and others that are not."""
    same, far = {"padding_h": 1, "padding_w": 1}, {"stride_h": 2, "dilation_w": 2}
    nodes = (
        Node("conv", (0,), (0,), same),
        Node("relu", (1,)),
        Node("max_pool", (2,), settings=HALVES),
        Node("conv", (3,), (1, 2), {**far, "groups": 2}),
        Node("max_pool", (4,), settings={"kernel_w": 3, "stride_w": 2, "padding_w": 1}),
        Node("relu", (5,)),
        Node("flatten", (6,)),
        Node("linear", (7,), (3,)),
    )
    weights = [sparse(random, 4, 2, 3, 3), sparse(random, 6, 2, 2, 3)]
    bias = random.standard_normal(6).astype(np.float32)
    return Graph((2, 13, 14), nodes), [*weights, bias, sparse(random, 5, 6 * 3 * 2)]


def only_moved(random: np.random.Generator) -> tuple[Graph, list[np.ndarray]]:
    return Graph((1, 6, 6), (Node("relu", (0,)), Node("max_pool", (1,), settings=HALVES))), []


def streamed(random: np.random.Generator) -> tuple[Graph, list[np.ndarray]]:
    """Convolutions without padding: the first may write over what it has read."""
    nodes = (
        Node("conv", (0,), (0, 1), {"stride_w": 2}),
        Node("relu", (1,)),
        Node("conv", (2,), (2,), {"stride_h": 2, "dilation_w": 2}),
        Node("flatten", (3,)),
        Node("linear", (4,), (3,)),
    )
    weights = [sparse(random, 3, 2, 3, 3), random.standard_normal(3).astype(np.float32)]
    return Graph((2, 13, 12), nodes), [
        *weights, sparse(random, 4, 3, 2, 2), sparse(random, 5, 4 * 5 * 3)
    ]  # fmt: skip


def residual(random: np.random.Generator) -> tuple[Graph, list[np.ndarray]]:
    """A block with batch norms and a shortcut, a sum by itself, a mean and a linear layer."""
    same = {"padding_h": 1, "padding_w": 1}
    nodes = (
        Node("conv", (0,), (0,), same),
        Node("batch_norm", (1,), (1, 2, 3, 4)),
        Node("relu", (2,)),
        Node("conv", (3,), (5,), same),
        Node("batch_norm", (4,), (1, 2, 3, 4)),
        Node("add", (5, 3)),
        Node("relu", (6,)),
        Node("tanh", (7,)),
        Node("add", (8, 7)),
        Node("mean", (9,), settings={"dim": 2, "count": 2}),
        Node("flatten", (10,)),
        Node("linear", (11,), (6,)),
    )
    norm = [random.uniform(0.5, 2, 4).astype(np.float32) for _ in range(4)]
    convs = [sparse(random, 4, 2, 3, 3), sparse(random, 4, 4, 3, 3)]
    return Graph((2, 8, 9), nodes), [convs[0], *norm, convs[1], sparse(random, 5, 4)]


def averaged(random: np.random.Generator) -> tuple[Graph, list[np.ndarray]]:
    """Means of windows, of which some have padding, and functions of each number."""
    window = {"kernel_h": 3, "kernel_w": 2, "stride_h": 2, "stride_w": 1, "padding_h": 1}
    nodes = (
        Node("avg_pool", (0,), settings={**window, "count_padding": 0}),
        Node("leaky_relu", (1,), settings={"slope": 0.3}),
        Node("adaptive_avg_pool", (2,), settings={"size_h": 2, "size_w": 3}),
        Node("sigmoid", (3,)),
    )
    return Graph((3, 9, 8), nodes), []


def in_another_order(random: np.random.Generator) -> tuple[Graph, list[np.ndarray]]:
    """As the shortcuts of He et al. that take every second pixel and pad channels."""
    half = {"dim": 2, "size": 4, "step": 2}
    nodes = (
        Node("slice", (0,), settings=half),
        Node("pad", (1,), settings={"before": 1, "after": 2, "value": 0.5}),
        Node("permute", (2,), (), (3, 1, 2)),
    )
    return Graph((3, 8, 6), nodes), []


NETWORKS = (plain, padded, only_moved, streamed, residual, averaged, in_another_order)


def as_whole(made: Quantised, x: np.ndarray) -> np.ndarray:
    assert made.network.scales is not None
    scale = np.float32(made.network.scales[0])
    return np.clip(np.round(x / scale), -127, 127).astype(np.int8)


@needs_compiler
@pytest.mark.parametrize("least_ram", [False, True], ids=["size", "ram"])
@pytest.mark.parametrize(
    "make", [plain, padded, only_moved, streamed, residual, averaged, in_another_order]
)
def test_c_is_what_numpy_says_bit_by_bit(make, least_ram: bool, tmp_path: Path) -> None:
    networks, batches, truths = {}, {}, {}
    for seed in range(5):
        random = np.random.default_rng(seed)
        graph, weights = make(random)
        x = random.standard_normal((40, *graph.input_shape)).astype(np.float32)
        made, name = quantised(graph, weights, x[:20], least_ram), f"net_{seed}"
        assert made.network.scales is not None
        networks[name], batches[name] = made.network, as_whole(made, x)
        truths[name] = np.round(made(x).reshape(40, -1) / made.network.scales[1])
        floats = Net(graph, {str(i): weight for i, weight in enumerate(weights)})(x[:20])
        error = np.abs(made(x[:20]) - floats).max() / np.abs(floats).max()
        assert error < 0.1
    found = run(networks, batches, tmp_path)
    for name, truth in truths.items():
        np.testing.assert_array_equal(found[name], truth, err_msg=name)


@needs_compiler
def test_the_record_in_8_bits_takes_little_memory(tmp_path: Path) -> None:
    net = load(RECORD)
    x = np.random.default_rng(0).random((30, 1, 28, 28), np.float32)
    made = quantised(net.graph, net.weights, x)
    written = sources(made.network, "net", "")
    assert written.tables <= 4096
    assert written.workspace + 784 + 10 <= 4096
    assert made.network.scales is not None
    found = run({"net": made.network}, {"net": as_whole(made, x)}, tmp_path)["net"]
    np.testing.assert_array_equal(found, np.round(made(x) / made.network.scales[1]))
    floats = net(x)
    assert np.abs(made(x) - floats).max() < 0.1 * np.abs(floats).max()


@needs_compiler
def test_the_record_fits_an_arduino_uno(tmp_path: Path) -> None:
    """Of its 2,048 bytes of RAM the network leaves enough for a stack."""
    net = load(RECORD)
    x = np.random.default_rng(0).random((30, 1, 28, 28), np.float32)
    made = quantised(net.graph, net.weights, x, least_ram=True)
    assert made.network.bytes + 10 <= 1700
    assert made.network.scales is not None
    found = run({"net": made.network}, {"net": as_whole(made, x)}, tmp_path)["net"]
    np.testing.assert_array_equal(found, np.round(made(x) / made.network.scales[1]))


@pytest.mark.parametrize("number", [1e-6, 0.003, 0.4999, 0.5, 1.0, 3.7, 900.0])
def test_a_factor_is_a_whole_number_and_a_shift(number: float) -> None:
    factor, shift = fixed_point(number)
    assert 0 < factor < 2**31
    assert factor / 2**shift == pytest.approx(number, rel=1e-8)


def test_what_has_no_form_in_8_bits_is_named() -> None:
    x = np.zeros((2, 5), np.float32)
    unknown = Graph((5,), (Node("softmax", (0,)), Node("log_softmax", (1,))))
    with pytest.raises(InputError, match="no form of softmax, log_softmax: export without it"):
        quantised(unknown, [], x)
    spread = Graph((3, 5), (Node("mean", (0,)), Node("add", (0, 1))))
    with pytest.raises(InputError, match="different shapes"):
        quantised(spread, [], np.zeros((2, 3, 5), np.float32))
    two = Graph((Input((5,)), Input((5,))), (Node("relu", (0,)),))
    with pytest.raises(InputError, match="one input of floats"):
        quantised(two, [], x)
    with pytest.raises(InputError, match="not finite"):
        quantised(Graph((5,), (Node("relu", (0,)),)), [], x + np.inf)


def test_examples_are_the_first_of_a_loader() -> None:
    batches = [(np.full((200, 3), number), None) for number in range(9)]
    found = examples_of(batches, "--int8")
    assert found.shape == (512, 3)
    assert found[-1, 0] == 2
    ragged = [(np.zeros((2, 3)), None), (np.zeros((2, 4)), None)]
    named = [({"x": np.zeros((2, 3))}, None)]
    raising = (1 / 0 for _ in range(3))
    for wrong, reason in (
        ([], "has none"),
        ([np.zeros(3)], "gives"),
        (ragged, "of one shape"),
        (named, "found a dict"),
        (raising, "loader raised ZeroDivisionError"),
    ):
        with pytest.raises(InputError, match=reason):
            examples_of(wrong, "--int8")
