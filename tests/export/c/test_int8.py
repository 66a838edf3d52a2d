"""Networks of 8 bits: C computes what numpy says it does, bit by bit, and near what floats do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asterism.cli.commands.export import examples_of
from asterism.errors import InputError
from asterism.export.c.source import sources
from asterism.export.steps.quantised import Quantised, fixed_point, quantised
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


def as_whole(made: Quantised, x: np.ndarray) -> np.ndarray:
    assert made.network.scales is not None
    scale = np.float32(made.network.scales[0])
    return np.clip(np.round(x / scale), -127, 127).astype(np.int8)


@needs_compiler
@pytest.mark.parametrize("make", [plain, padded, only_moved])
def test_c_is_what_numpy_says_bit_by_bit(make, tmp_path: Path) -> None:
    networks, batches, truths = {}, {}, {}
    for seed in range(5):
        random = np.random.default_rng(seed)
        graph, weights = make(random)
        x = random.standard_normal((40, *graph.input_shape)).astype(np.float32)
        made, name = quantised(graph, weights, x[:20]), f"net_{seed}"
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


@pytest.mark.parametrize("number", [1e-6, 0.003, 0.4999, 0.5, 1.0, 3.7, 900.0])
def test_a_factor_is_a_whole_number_and_a_shift(number: float) -> None:
    factor, shift = fixed_point(number)
    assert 0 < factor < 2**31
    assert factor / 2**shift == pytest.approx(number, rel=1e-8)


def test_what_has_no_form_in_8_bits_is_named() -> None:
    x = np.zeros((2, 5), np.float32)
    with pytest.raises(InputError, match="and not softmax, tanh: export without it"):
        quantised(Graph((5,), (Node("softmax", (0,)), Node("tanh", (1,)))), [], x)
    two = Graph((Input((5,)), Input((5,))), (Node("relu", (0,)),))
    with pytest.raises(InputError, match="one input of floats"):
        quantised(two, [], x)
    with pytest.raises(InputError, match="not finite"):
        quantised(Graph((5,), (Node("relu", (0,)),)), [], x + np.inf)


def test_examples_are_the_first_of_a_loader() -> None:
    batches = [(np.full((200, 3), number), None) for number in range(9)]
    found = examples_of(batches)
    assert found.shape == (512, 3)
    assert found[-1, 0] == 2
    for wrong, reason in (([], "has none"), ([np.zeros(3)], "gives")):
        with pytest.raises(InputError, match=reason):
            examples_of(wrong)
