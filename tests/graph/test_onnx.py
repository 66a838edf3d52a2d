"""ONNX files as graphs: each operator as ONNX Runtime has it, and whole networks there and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import asterism
from asterism.export.onnx import onnx_bytes
from asterism.graph.network import decode, encode
from asterism.graph.onnx.folding import FOLDS
from asterism.graph.onnx.rules import RULES
from asterism.graph.rebuild import rebuild
from support.networks import NETWORKS, make
from support.onnx_models import BATCH, answers, model, node, write
from support.operations import CASES, Case
from support.transformers import OF_WORDS, OVER_TOKENS, WIDTH, WORDS, prune
from support.vision import VISION, make_vision

RANDOM = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


class Op(NamedTuple):
    """One operator: of values x, x1 … with these shapes, without the batch, and of constants."""

    name: str
    shapes: tuple[tuple[int, ...], ...] = ((3, 6, 8),)
    constants: tuple[np.ndarray | None, ...] = ()
    attributes: dict[str, Any] = {}  # noqa: RUF012
    opset: int = 20
    outputs: int = 1
    first: bool = True  # values before constants
    integers: bool = False

    def model(self) -> Any:
        values = [f"x{place}" for place in range(len(self.shapes))]
        held = {f"c{i}": c for i, c in enumerate(self.constants) if c is not None}
        given = ["" if c is None else f"c{i}" for i, c in enumerate(self.constants)]
        names = [*values, *given] if self.first else [*given, *values]
        results = [f"y{place}" for place in range(self.outputs)]
        made = node(self.name, names, results, **self.attributes)
        inputs = {n: [BATCH, *shape] for n, shape in zip(values, self.shapes, strict=True)}
        whole = values if self.integers else ()
        return model([made], inputs, held, results, self.opset, whole)

    def feed(self, size: int) -> dict[str, np.ndarray]:
        random = np.random.default_rng(size)
        shapes = {f"x{place}": (size, *shape) for place, shape in enumerate(self.shapes)}
        if self.integers:
            return {name: random.integers(0, 5, shape) for name, shape in shapes.items()}
        drawn = {name: random.standard_normal(shape) for name, shape in shapes.items()}
        return {name: 2 * x.astype(np.float32) for name, x in drawn.items()}


ARITHMETIC = ("Add", "Sub", "Mul", "Div", "Max", "Min")
KERNEL = numbers(4, 3, 3, 3)
TWO = ((3, 6, 8), (3, 6, 8))
NORM = tuple(abs(numbers(3)) + 0.1 for _ in range(4))
SCALES = np.float32([1, 1, 2, 2])
LSTM = (numbers(1, 20, 3), numbers(1, 20, 5), numbers(1, 40))
GRU = (numbers(1, 15, 3), numbers(1, 15, 5), numbers(1, 30))
TURNED = {"perm": [1, 0, 2]}
OPS = [
    *(Op(name) for name in ("Relu", "Sigmoid", "Tanh", "Softplus", "Mish", "Exp", "Abs", "Erf")),
    *(Op(name) for name in ("HardSwish", "Neg", "Softsign", "Elu", "Selu", "Celu", "LeakyRelu")),
    *(Op(name) for name in ("HardSigmoid", "Gelu", "Softmax", "LogSoftmax", "Flatten", "IsNaN")),
    *(Op(name) for name in ("GlobalMaxPool", "GlobalAveragePool", "Reciprocal")),
    Op("Gelu", attributes={"approximate": "tanh"}),
    Op("HardSigmoid", attributes={"alpha": 1 / 6, "beta": 0.5}),
    Op("Swish", attributes={"alpha": 1.5}, opset=24),
    Op("PRelu", constants=(numbers(3, 1, 1),)),
    Op("PRelu", constants=(numbers(1),)),
    Op("Clip", constants=(np.float32(-0.5), np.float32(0.7))),
    Op("Clip", attributes={"max": 0.5}, opset=7),
    Op("Pow", constants=(np.float32(2),)),
    *(Op(name, TWO) for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean")),
    *(Op(name, constants=(np.float32(1.5),)) for name in ARITHMETIC),
    *(Op(name, constants=(np.float32([[1.5]]),), first=False) for name in ARITHMETIC),
    *(Op(name, constants=(numbers(3, 1, 8),)) for name in ("Add", "Sub", "Mul", "Div", "Max")),
    Op("Add", ((3, 6, 8), (3, 1, 8))),
    Op("Sub", constants=(numbers(2, 1, 1, 1, 8),), first=False),
    Op("Max", TWO, (numbers(8),)),
    Op("MatMul", ((4, 5),), (numbers(5, 6),)),
    Op("MatMul", ((4, 5),), (numbers(5),)),
    Op("MatMul", ((4, 5),), (numbers(3, 4),), first=False),
    Op("MatMul", ((3, 4, 5),), (numbers(3, 5, 2),)),
    Op("MatMul", ((3, 4, 5), (3, 5, 2))),
    Op("MatMul", ((3, 4, 5), (1, 5, 2))),
    Op("Gemm", ((7,),), (numbers(7, 4), numbers(4)), {"alpha": 0.5, "beta": 2.0}),
    Op("Gemm", ((7,),), (numbers(4, 7), numbers(1, 4)), {"transB": 1}),
    Op("Conv", constants=(KERNEL, numbers(4)), attributes={"pads": [1, 1, 1, 1]}),
    Op("Conv", constants=(KERNEL,), attributes={"pads": [0, 1, 2, 1], "strides": [2, 1]}),
    Op("Conv", constants=(KERNEL,), attributes={"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Op("Conv", constants=(KERNEL,), attributes={"auto_pad": "SAME_LOWER", "strides": [1, 2]}),
    Op("Conv", constants=(KERNEL,), attributes={"auto_pad": "VALID", "dilations": [2, 1]}),
    Op("Conv", ((4, 9),), (numbers(6, 2, 3),), {"group": 2, "pads": [2, 2]}),
    Op("Conv", ((4, 9, 1),), (numbers(6, 4, 3, 1), numbers(6)), {"strides": [2, 1]}),
    Op("Conv", ((2, 5, 6, 4),), (numbers(3, 2, 2, 3, 1),)),
    Op("ConvTranspose", ((3, 6, 8),), (numbers(3, 4, 2, 2), numbers(4)), {"strides": [2, 2]}),
    Op("ConvTranspose", constants=(numbers(3, 4, 3, 3),), attributes={"pads": [0, 1, 2, 1]}),
    Op("MaxPool", attributes={"kernel_shape": [2, 3], "strides": [2, 1]}),
    Op("MaxPool", attributes={"kernel_shape": [3, 3], "pads": [0, 1, 2, 1], "ceil_mode": 1}),
    Op("MaxPool", ((3, 9),), attributes={"kernel_shape": [3], "auto_pad": "SAME_UPPER"}),
    Op("AveragePool", attributes={"kernel_shape": [2, 2], "strides": [2, 2]}),
    Op("AveragePool", attributes={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    Op(
        "AveragePool",
        attributes={"kernel_shape": [3, 3], "pads": [0, 1, 2, 1], "count_include_pad": 1},
    ),
    Op("Resize", constants=(None, SCALES), attributes={"mode": "nearest"}),
    Op("Resize", constants=(None, SCALES), attributes={"mode": "linear"}),
    Op(
        "Resize",
        constants=(None, None, integers(9)),
        attributes={
            "mode": "linear",
            "coordinate_transformation_mode": "align_corners",
            "axes": [2],
        },
    ),
    Op(
        "Resize",
        constants=(None, SCALES),
        attributes={
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        },
    ),
    Op("Upsample", constants=(SCALES,), opset=9),
    *(Op(f"Reduce{n}", constants=(integers(1, 3),)) for n in ("Mean", "Sum", "Max", "Min", "L1")),
    *(
        Op(f"Reduce{n}", attributes={"axes": [-1], "keepdims": 0}, opset=11)
        for n in ("Mean", "Sum", "Max", "Min", "L2", "SumSquare")
    ),
    Op("Softmax", attributes={"axis": 2}, opset=11),
    Op("Softmax", attributes={"axis": 1}),
    Op("BatchNormalization", constants=NORM, attributes={"epsilon": 1e-3}),
    Op("InstanceNormalization", constants=NORM[:2]),
    Op("GroupNormalization", ((4, 5, 6),), (numbers(4), numbers(4)), {"num_groups": 2}, opset=21),
    Op("LayerNormalization", constants=(numbers(8), numbers(8))),
    Op("LayerNormalization", constants=(numbers(6, 8),), attributes={"axis": -2}),
    Op("RMSNormalization", constants=(numbers(8),), opset=23),
    Op("Reshape", constants=(integers(0, -1, 4),)),
    Op("Reshape", constants=(integers(-1, 8),)),
    Op("Flatten", attributes={"axis": 3}),
    Op("Squeeze", ((3, 1, 8),), (integers(2),)),
    Op("Squeeze", ((3, 1, 8),), attributes={"axes": [-2]}, opset=11),
    Op("Squeeze", ((3, 1, 8),)),
    Op("Unsqueeze", constants=(integers(1, -1),)),
    Op("Transpose", attributes={"perm": [0, 3, 1, 2]}),
    Op("Slice", constants=(integers(1), integers(-1), integers(-1), integers(2))),
    Op("Slice", attributes={"starts": [1, 0], "ends": [3, 99], "axes": [1, 3]}, opset=9),
    Op("Gather", constants=(np.int64(-2),), attributes={"axis": 2}),
    Op("Gather", constants=(integers(0, 2, 4),), attributes={"axis": 2}),
    Op("Gather", constants=(integers(2, 0, 0),), attributes={"axis": 1}),
    Op("Gather", ((4,),), (numbers(5, 3),), first=False, integers=True),
    Op("Split", constants=(integers(2, 4),), attributes={"axis": 2}, outputs=2),
    Op("Split", attributes={"axis": -1, "num_outputs": 3}, outputs=3),
    Op("Concat", TWO, attributes={"axis": 2}),
    Op("Expand", ((3, 1, 8),), (integers(1, 1, 5, 1),)),
    Op("Tile", constants=(integers(1, 2, 1, 3),)),
    Op("Pad", constants=(integers(0, 0, 1, 2, 0, 1, 0, 3), np.float32(0.5))),
    Op("Pad", constants=(integers(0, 0, 1, 2, 0, 0, 2, 1),), attributes={"mode": "reflect"}),
    Op("Pad", constants=(integers(0, 0, 1, -2, 0, 0, -1, 3),), attributes={"mode": "edge"}),
    Op("Pad", attributes={"pads": [0, 0, 1, 2, 0, 1, 0, 3], "value": 2.0}, opset=10),
    Op("DepthToSpace", ((8, 3, 4),), attributes={"blocksize": 2}),
    Op("DepthToSpace", ((8, 3, 4),), attributes={"blocksize": 2, "mode": "CRD"}),
    Op("SpaceToDepth", ((2, 4, 6),), attributes={"blocksize": 2}),
    *(Op(name, TWO) for name in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")),
    Op("OneHot", ((4,),), (np.int64(5), np.float32([0.5, 2])), integers=True),
]  # fmt: skip


def check(path: Path, feed: dict[str, np.ndarray], tolerance: float = 2e-5) -> None:
    """Our answers are those of ONNX Runtime."""
    network = asterism.from_onnx(path)
    assert network.missing is None
    assert decode(encode(network.graph)) == network.graph
    found = network.net()(*feed.values())
    found = found if isinstance(found, tuple) else (found,)
    for ours, truth in zip(found, answers(path, feed), strict=True):
        if truth.ndim == ours.ndim and truth.shape != ours.shape:
            truth = np.moveaxis(truth, 1, 0)  # of ours the batch is always the first
        np.testing.assert_allclose(
            ours.reshape(truth.shape), truth, rtol=1e-4, atol=tolerance, equal_nan=True
        )


@pytest.mark.parametrize("op", OPS, ids=lambda op: f"{op.name}-{op.opset}")
def test_an_operator_is_what_onnx_runtime_has(op: Op, tmp_path: Path) -> None:
    path = write(op.model(), tmp_path)
    for size in (1, 3):
        check(path, op.feed(size))


def recurrent(name: str, weights: tuple[np.ndarray, ...], **attributes: Any) -> Any:
    """With the steps first, as ONNX has them, and all results; the network has the batch first."""
    both, units = weights[0].shape[0], weights[1].shape[2]
    results = ["Y", "H", "C"][: 3 if name == "LSTM" else 2]
    states = dict(zip(["h", "c"], [["batch", both, units]] * (len(results) - 1), strict=False))
    turned = [node("Transpose", [n], [f"{n}_"], perm=[1, 0, 2]) for n in ("x", *states)]
    held = dict(zip("WRB", weights, strict=True))
    layer = node(
        name, ["x_", "W", "R", "B", "", *(f"{n}_" for n in states)], results,
        hidden_size=units, **attributes,
    )  # fmt: skip
    after = [node("Transpose", ["Y"], ["y0"], perm=[2, 0, 1, 3])]
    after += [node("Transpose", [n], [f"y{n}"], perm=[1, 0, 2]) for n in results[1:]]
    outputs = ["y0", *(f"y{n}" for n in results[1:])]
    return model([*turned, layer, *after], {"x": [BATCH, 6, 3], **states}, held, outputs)


def doubled(weights: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.concatenate([weight, weight[:, ::-1]]) for weight in weights)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_recurrent_layers_begin_and_end_in_their_states(
    name: str, both: bool, tmp_path: Path
) -> None:
    weights = {"LSTM": LSTM, "GRU": GRU}[name]
    more = {} if name == "LSTM" else {"linear_before_reset": 1}
    if both:
        weights, more = doubled(weights), {**more, "direction": "bidirectional"}
    path = write(recurrent(name, weights, **more), tmp_path)
    directions = 2 if both else 1
    feed = {"x": numbers(4, 6, 3), "h": numbers(4, directions, 5)}
    feed |= {"c": numbers(4, directions, 5)} if name == "LSTM" else {}
    check(path, feed)


LOGIC = [
    node("Greater", ["x", "zero"], ["a"]), node("Less", ["x", "one"], ["b"]),
    node("And", ["a", "b"], ["both"]), node("Not", ["both"], ["not"]),
    node("Or", ["not", "a"], ["or"]), node("Sqrt", ["x"], ["root"]),
    node("Log", ["x"], ["log"]), node("Where", ["or", "root", "log"], ["chosen"]),
    node("IsNaN", ["chosen"], ["none"]), node("Where", ["none", "zero", "chosen"], ["y"]),
]  # fmt: skip
IDLE = [
    node("Identity", ["x"], ["a"]), node("Dropout", ["a"], ["b"]), node("Cast", ["b"], ["c"], to=1),
    node("ReduceSum", ["c"], ["d"], noop_with_empty_axes=1), node("Relu", ["d"], ["y"]),
]  # fmt: skip
BIASED = [node("MatMul", ["x", "w"], ["made"]), node("Add", ["made", "b"], ["y"])]
SHAPED = [
    node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "i"], ["n"], axis=0),
    node("Unsqueeze", ["n", "i1"], ["n1"]), node("Concat", ["n1", "rest"], ["sizes"], axis=0),
    node("Reshape", ["x", "sizes"], ["flat"]), node("ConstantOfShape", ["sizes"], ["zeros"]),
    node("Concat", ["n1", "one", "five"], ["sizes1"], axis=0),
    node("Expand", ["token", "sizes1"], ["tokens"]),
    node("Add", ["flat", "zeros"], ["added"]),
    node("Concat", ["tokens", "added"], ["y"], axis=1),
]  # fmt: skip


def test_truth_values_choose(tmp_path: Path) -> None:
    held = {"zero": np.float32(0), "one": np.float32(1)}
    path = write(model(LOGIC, {"x": [BATCH, 40]}, held), tmp_path)
    with np.errstate(all="ignore"):
        check(path, {"x": numbers(3, 40)})


def test_a_sum_after_a_product_is_its_bias(tmp_path: Path) -> None:
    held = {"w": numbers(7, 4), "b": numbers(4)}
    path = write(model(BIASED, {"x": [BATCH, 7]}, held), tmp_path)
    check(path, {"x": numbers(3, 7)})
    assert [each.op for each in asterism.from_onnx(path).graph.nodes] == ["linear"]


def test_shapes_are_computed_in_advance(tmp_path: Path) -> None:
    held = {
        "i": np.int64(0), "i1": integers(0), "rest": integers(4, 5), "one": integers(1),
        "five": integers(5), "token": numbers(1, 1, 5),
    }  # fmt: skip
    path = write(model(SHAPED, {"x": [BATCH, 2, 10]}, held), tmp_path)
    check(path, {"x": numbers(3, 2, 10)})


def test_what_does_nothing_is_no_layer(tmp_path: Path) -> None:
    path = write(model(IDLE, {"x": [BATCH, 40]}), tmp_path)
    check(path, {"x": numbers(3, 40)})
    assert [each.op for each in asterism.from_onnx(path).graph.nodes] == ["relu"]


def test_a_matrix_of_compared_ids_is_an_embedding(tmp_path: Path) -> None:
    held = {"d": np.int64(5), "v": np.float32([0, 1]), "w": numbers(5, 3)}
    nodes = [node("OneHot", ["x", "d", "v"], ["hot"]), node("MatMul", ["hot", "w"], ["y"])]
    path = write(model(nodes, {"x": [BATCH, 4]}, held, integers=["x"]), tmp_path)
    check(path, {"x": np.random.default_rng(0).integers(0, 5, (3, 4))})
    assert [each.op for each in asterism.from_onnx(path).graph.nodes] == ["embedding"]


@pytest.mark.parametrize("sizes", [[1, -1], [1, 30], [-1, 30], [1, 5, 6], [0, 2, 15]])
def test_a_batch_of_fixed_size_is_free(sizes: list[int], tmp_path: Path) -> None:
    nodes = [node("Reshape", ["x", "s"], ["flat"]), node("Relu", ["flat"])]
    found = model(nodes, {"x": [1, 5, 6]}, {"s": integers(*sizes)})
    path = write(found, tmp_path)
    check(path, {"x": numbers(1, 5, 6)})
    assert len(asterism.from_onnx(path).net()(numbers(4, 5, 6))) == 4


def test_a_choice_that_is_known_in_advance_is_made(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    def branch(op: str) -> Any:
        out = helper.make_empty_tensor_value_info("z")
        return helper.make_graph([node(op, ["x"], ["z"])], op, [], [out])

    nodes = [
        node("Equal", ["rate", "wanted"], ["same"]),
        node("If", ["same"], then_branch=branch("Relu"), else_branch=branch("Neg")),
    ]
    held = {"wanted": np.int64(16000)}
    found = model(nodes, {"x": [BATCH, 5]}, held)
    found.graph.input.append(helper.make_tensor_value_info("rate", TensorProto.INT64, []))
    path, x = write(found, tmp_path), numbers(3, 5)
    for rate, truth in ((16000, np.maximum(x, 0)), (8000, -x)):
        network = asterism.from_onnx(path, fixed={"rate": rate})
        np.testing.assert_array_equal(network.net()(x), truth)
    with pytest.raises(asterism.InputError, match="the input rate is one number.*--fix rate="):
        asterism.from_onnx(path)


def test_weights_in_whole_numbers_become_floats(tmp_path: Path) -> None:
    nodes = [node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0),
             node("Gemm", ["x", "w"], transB=1)]  # fmt: skip
    held = {
        "q": RANDOM.integers(-128, 127, (4, 6)).astype(np.int8),
        "s": np.float32([0.1, 0.2, 0.3, 0.4]), "z": np.int8([1, 0, 2, 3]),
    }  # fmt: skip
    path = write(model(nodes, {"x": [BATCH, 6]}, held), tmp_path)
    check(path, {"x": numbers(3, 6)}, 1e-4)


def test_every_operator_is_tried() -> None:
    tried = {op.name for op in OPS} | {each.op_type for each in [*LOGIC, *SHAPED, *IDLE]}
    assert RULES.keys() - tried - {"LSTM", "GRU", "Size"} == set()
    assert {"Add", "Cast", "Concat", "Gather", "Reshape", "Shape", "Slice"} <= FOLDS.keys()


# ---------------------------------------------------------------------- there and back


@torch.no_grad()
def there_and_back(module: nn.Module, x: Tensor, folder: Path) -> asterism.Imported:
    """The network that our exporter's file is, which answers as torch does."""
    path = folder / "net.onnx"
    path.write_bytes(onnx_bytes(module.eval(), x[:2]))
    network, truth = asterism.from_onnx(path), module(x).numpy()
    assert network.missing is None
    scale = np.abs(truth[np.isfinite(truth)]).max(initial=1)
    found = network.net()(x.numpy())
    np.testing.assert_allclose(found, truth, rtol=1e-4, atol=2e-6 * scale, equal_nan=True)
    return network


@pytest.mark.parametrize("case", [each for each in CASES if each.values[0].example.onnx])
def test_each_operation_comes_back_from_onnx(case: Case, tmp_path: Path) -> None:
    module = rebuild(case.graph, case.weights)
    there_and_back(module, torch.from_numpy(case.batch(3)), tmp_path)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_come_back(name: str, tmp_path: Path) -> None:
    module, shape = make(name)
    network = there_and_back(module, torch.randn(3, *shape), tmp_path)
    kept = sum(int(np.count_nonzero(w)) for w in module.state_dict().values() if w.ndim > 1)
    found = [w for w in network.tensors.values() if w.ndim > 1]
    assert sum(int(np.count_nonzero(w)) for w in found) <= kept
    assert network.save(tmp_path / "net.asterism") < 4 * sum(w.size for w in found)


@pytest.mark.parametrize("name", sorted({*VISION} - {"super-resolution", "volume"}))
def test_networks_over_images_come_back(name: str, tmp_path: Path) -> None:
    module, shape = make_vision(name, 0.3)
    there_and_back(module, torch.randn(3, *shape), tmp_path)


@pytest.mark.parametrize("name", OVER_TOKENS)
def test_networks_over_tokens_come_back(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    there_and_back(prune(OVER_TOKENS[name]()), torch.randn(3, 9, WIDTH), tmp_path)


@pytest.mark.parametrize("name", OF_WORDS)
def test_networks_over_words_come_back(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    there_and_back(prune(OF_WORDS[name]()), torch.randint(0, WORDS, (3, 9)), tmp_path)
