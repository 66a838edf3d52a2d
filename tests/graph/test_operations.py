"""Every operation, by the examples that it brings: all stages agree, and misfits are refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import asterism.kernels.library as library
from asterism.errors import FormatError
from asterism.graph.capture import RULES, capture
from asterism.graph.network import Graph, Node, decode, encode
from asterism.graph.operations import OPERATIONS
from asterism.graph.operations.__main__ import page
from asterism.graph.operations.operation import Operation
from asterism.graph.operations.pooling import halves
from asterism.graph.rebuild import rebuild
from asterism.graph.shapes import infer
from asterism.runtime import Net, reference
from support.operations import CASES, Case
from support.paths import ROOT

# These are in files, for ever.
CODES = {
    "conv": 1,
    "linear": 2,
    "max_pool": 3,
    "avg_pool": 4,
    "adaptive_avg_pool": 5,
    "adaptive_max_pool": 6,
    "batch_norm": 7,
    "layer_norm": 8,
    "relu": 9,
    "gelu": 10,
    "silu": 11,
    "sigmoid": 12,
    "tanh": 13,
    "softmax": 14,
    "leaky_relu": 15,
    "clamp": 16,
    "add": 17,
    "mul": 18,
    "cat": 19,
    "flatten": 20,
    "reshape": 21,
    "permute": 22,
    "weight": 23,
    "weight_norm": 24,
    "sub": 25,
    "div": 26,
    "maximum": 27,
    "minimum": 28,
    "scale_shift": 29,
    "slice": 30,
    "expand": 31,
    "mean": 32,
    "log_softmax": 33,
    "hard_swish": 34,
    "hard_sigmoid": 35,
    "elu": 36,
    "power": 37,
    "mish": 38,
    "exp": 39,
    "log": 40,
    "abs": 41,
    "softplus": 42,
    "pad": 43,
    "resize": 44,
    "conv_transpose": 45,
    "conv3d": 46,
    "rms_norm": 47,
    "group_norm": 48,
    "prelu": 49,
    "erf": 50,
    "equal": 51,
    "greater": 52,
    "keep": 53,
}
# Dimensions of weights, by the weight's place, that nothing else has to fit. Of other outputs than
# before it is the bias that does not fit, if there is one.
ANY_SIZE = {
    "conv": {(0, 0), (0, 2), (0, 3)},
    "conv3d": {(0, 0), (0, 2), (0, 3), (0, 4)},
    "conv_transpose": {(0, 1), (0, 2), (0, 3), (0, 4)},
    "linear": {(0, 0)},
    "weight": {(0, 0), (0, 1)},
    "weight_norm": {(0, 0), (0, 1)},
    "embedding": {(0, 0), (0, 1)},
    # Of a larger mask or table the beginning counts.
    "attention": {(0, 0), (0, 1), (0, 2)},
    "hide": {(0, 0), (0, 1)},
    "cut": {(0, 0), (0, 1), (0, 2)},
}
# What many others may make, and what only ONNX files have.
NOT_CAPTURED = {"cut", "equal", "greater", "keep"}
# By which a layer turns its input or its result, whatever it is.
AROUND = {"PACK", "TO_COLUMNS", "FROM_COLUMNS"}


def named(weights: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {str(place): weight for place, weight in enumerate(weights)}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=list(OPERATIONS))
def test_an_operation_is_complete(operation: Operation) -> None:
    assert operation.captures or operation.name in NOT_CAPTURED
    assert any(example.onnx for example in operation.examples)
    assert (operation.onnx == "yes") == all(example.onnx for example in operation.examples)
    assert operation.code > 0
    assert not (operation.free and operation.defaults)
    assert set(operation.kernels) <= set(library.KERNELS)
    emits = type(operation).emit is not Operation.emit
    assert emits == bool(operation.kernels)
    assert operation.view != emits or not operation.compiled


def test_kernels_and_activations_are_counted_as_in_c() -> None:
    header = (ROOT / "src/asterism/kernels/program.h").read_text()
    for enum, names in (("Operation", library.KERNELS), ("Activation", library.ACTIVATIONS)):
        body = re.search(rf"enum {enum} {{(.*?)}}", header, re.DOTALL)[1]
        assert re.findall(r"\w+", body) == [name.upper() for name in names]


def test_codes_are_those_of_files_and_no_two_operations_share_one() -> None:
    found = {name: operation.code for name, operation in OPERATIONS.items()}
    assert found.items() >= CODES.items()
    assert len(set(found.values())) == len(found)


def test_no_two_operations_are_captured_from_the_same_of_torchs() -> None:
    names = [name for operation in OPERATIONS.values() for name in operation.captures]
    assert len(set(names)) == len(names)
    assert set(names) <= RULES.keys()


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=list(OPERATIONS))
def test_torch_has_what_operations_are_captured_from(operation: Operation) -> None:
    for name in operation.captures:
        _, packet, overload = name.split(".")
        assert overload in getattr(torch.ops.aten, packet).overloads()


@pytest.mark.parametrize("case", CASES)
def test_a_layer_survives_its_bytes(case: Case) -> None:
    assert decode(encode(case.graph)) == case.graph


@pytest.mark.parametrize("case", [each for each in CASES if each.values[0].operation.captures])
def test_torch_traces_its_own_form_back_to_the_same_layer(case: Case) -> None:
    module = rebuild(case.graph, case.weights)
    found = capture(module, torch.from_numpy(case.batch(1)))
    assert (found.nodes, found.outputs) == (case.graph.nodes, case.graph.outputs)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("case", CASES)
def test_numpy_torch_and_the_kernels_agree(case: Case) -> None:
    net, module = Net(case.graph, named(case.weights)), rebuild(case.graph, case.weights)
    for size in (0, 1, 5, 40):
        x = case.batch(size)
        truth = module(torch.from_numpy(x)).numpy()
        assert truth.shape[1:] == net.output_shape
        numbers = x.astype(np.float32)
        for answer in (net(x), reference.run(net.graph, net.shapes, net.weights, numbers)):
            np.testing.assert_allclose(answer, truth, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(library.load() is None, reason="the kernels are not built")
@pytest.mark.parametrize("case", CASES)
def test_a_layer_runs_by_the_kernels_that_it_names(case: Case) -> None:
    net = Net(case.graph, named(case.weights))
    plans = net.plans if net.layers else ()
    used = {step.kernel for plan in plans for step in plan.steps}
    assert used <= {*case.operation.kernels, *AROUND}
    assert used - AROUND or case.operation.view


@pytest.mark.parametrize("case", [each for each in CASES if each.values[0].weights])
def test_weights_of_another_size_are_refused(case: Case) -> None:
    for place, weight in enumerate(case.weights):
        for axis in range(weight.ndim):
            if (place, axis) in ANY_SIZE.get(case.operation.name, ()):
                continue
            wrong = [*case.weights]
            wrong[place] = np.concatenate([weight, weight], axis)
            with pytest.raises(FormatError, match=case.operation.name):
                infer(case.graph, wrong)
        if case.operation.name == "weight":
            continue  # which may have any shape
        flat = [*case.weights]
        flat[place] = weight.reshape(1, -1, *[1] * weight.ndim)
        with pytest.raises(FormatError, match=case.operation.name):
            infer(case.graph, flat)
    with pytest.raises(FormatError, match="needs weight"):
        infer(case.graph, case.weights[:-1])


@pytest.mark.parametrize("case", CASES)
def test_another_number_of_inputs_is_refused(case: Case) -> None:
    inputs, (node,) = case.graph.inputs, case.graph.nodes
    counts = [0] if case.operation.arity < 0 else [0, case.operation.arity + 1]
    for count in counts:
        wrong = Node(node.op, (0,) * count, node.weights, node.settings)
        with pytest.raises(FormatError, match="inputs"):
            infer(Graph(inputs, (wrong,)), case.weights)


@pytest.mark.parametrize("case", [each for each in CASES if each.values[0].example.inputs > 1])
def test_inputs_of_different_shapes_are_refused(case: Case) -> None:
    inputs, (node,) = case.graph.inputs, case.graph.nodes
    joined = Node(node.op, (0,) * (len(node.inputs) - 1) + (1,), node.weights, node.settings)
    with pytest.raises(FormatError, match="shapes"):
        infer(Graph(inputs, (Node("flatten", (0,)), joined)), case.weights)


@pytest.mark.parametrize("case", CASES)
@given(st.data())
def test_any_settings_are_refused_or_give_the_shape_that_they_promise(
    case: Case, data: st.DataObject
) -> None:
    number = st.integers(-3, 9)
    if case.operation.free:
        settings = tuple(data.draw(st.lists(number, max_size=4)))
    else:
        names = [n for n, value in case.operation.defaults.items() if isinstance(value, int)]
        settings = {name: data.draw(number) for name in names}
    inputs, (node,) = case.graph.inputs, case.graph.nodes
    graph = Graph(inputs, (Node(node.op, node.inputs, node.weights, settings),))
    try:
        shapes = infer(graph, case.weights)
    except FormatError:
        return
    found = reference.run(graph, shapes, case.weights, case.batch(2).astype(np.float32))
    assert found.shape == (2, *shapes[-1])


@pytest.mark.parametrize("name", ["kernel", "stride", "padding", "dilation", "ceil"])
def test_a_halving_pooling_is_two_by_two_and_nothing_else(name: str) -> None:
    plain = {"kernel_h": 2, "kernel_w": 2}
    assert halves(Node("max_pool", (0,), settings=plain))
    assert halves(Node("max_pool", (0,), settings={**plain, "stride_h": 2, "stride_w": 2}))
    for setting in [name] if name == "ceil" else [f"{name}_h", f"{name}_w"]:
        for number in {0, 1, 2, 3} - {plain.get(setting, 0)}:
            node = Node("max_pool", (0,), settings={**plain, setting: number})
            if node.settings != Node("max_pool", (0,), settings=plain).settings:
                assert not halves(node)
    assert not halves(Node("avg_pool", (0,), settings=plain))


def test_a_pooling_that_keeps_what_is_left_over_is_not_drawn_into_a_convolution() -> None:
    conv, relu = Node("conv", (0,), (0,)), Node("relu", (1,))
    pool = {"kernel_h": 2, "kernel_w": 2, "ceil": 1}
    graph = Graph((1, 7, 7), (conv, relu, Node("max_pool", (2,), settings=pool)))
    weight = np.random.default_rng(0).standard_normal((2, 1, 3, 3)).astype(np.float32)
    x = np.random.default_rng(1).standard_normal((5, 1, 7, 7)).astype(np.float32)
    truth = rebuild(graph, [weight])(torch.from_numpy(x)).numpy()
    assert truth.shape[2:] == (3, 3)
    np.testing.assert_allclose(Net(graph, {"w": weight})(x), truth, rtol=1e-4, atol=1e-5)


def test_a_network_with_an_operation_that_has_no_kernel_runs_in_numpy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(OPERATIONS["softmax"]), "kernels", ())
    graph = Graph((5,), (Node("relu", (0,)), Node("softmax", (1,))))
    x = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    net = Net(graph, {})
    truth = torch.from_numpy(x).relu().softmax(-1).numpy()
    np.testing.assert_allclose(net(x), truth, rtol=1e-5)
    assert "runs in numpy" in net.explain()
    assert "softmax" in net.explain() or library.load() is None


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_a_softmax_over_nothing_is_nothing(op: str) -> None:
    net = Net(Graph((3, 5, 0), (Node(op, (0,)),)), {})
    assert net(np.zeros((2, 3, 5, 0), np.float32)).shape == (2, 3, 5, 0)


def test_the_page_about_operations_is_what_they_are() -> None:
    written = (ROOT / "docs" / "operations.md").read_text()
    assert written == page(), "python -m asterism.graph.operations > docs/operations.md"
