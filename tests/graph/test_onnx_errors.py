"""ONNX files that are wrong, hostile, or of a kind that is not read: one clear line each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import asterism
import asterism.graph.onnx.reading as reading
from asterism.errors import FormatError, InputError, MissingError
from support.onnx_models import BATCH, model, node, write


def plain(**more: Any) -> Any:
    """A network of one layer."""
    held = {"w": np.float32([[1, 2], [3, 4]])}
    return model([node("MatMul", ["x", "w"])], {"x": [BATCH, 2]}, held, **more)


def refused(found: Any, folder: Path, match: str, **options: Any) -> None:
    with pytest.raises(InputError, match=match) as caught:
        asterism.from_onnx(write(found, folder), **options)
    assert "\n" not in str(caught.value)
    assert "model.onnx" in str(caught.value)


def missing(found: Any, folder: Path) -> str:
    """The one line about a network that is read, and cannot run."""
    network = asterism.from_onnx(write(found, folder))
    assert network.missing is not None
    with pytest.raises(InputError, match="cannot be run"):
        network.net()
    with pytest.warns(UserWarning, match="the file is written, but cannot be run"):
        network.save(folder / "net.asterism")
    return network.missing


def test_the_first_missing_operation_is_named_and_no_other(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Asinh", ["a"], ["b"]), node("Acosh", ["b"])]
    found = missing(model(nodes, {"x": [BATCH, 2]}), tmp_path)
    assert found == "the runtime has no operation onnx.Asinh"


def test_the_weights_of_a_missing_operation_are_kept(tmp_path: Path) -> None:
    held = {"w": np.float32([[1, 2], [3, 4]])}
    made = model([node("Einsum", ["x", "w"], equation="ni,io->no")], {"x": [BATCH, 2]}, held)
    with pytest.warns(UserWarning, match="no operation onnx.Einsum"):
        asterism.from_onnx(write(made, tmp_path)).save(tmp_path / "net.asterism")
    found = asterism.file.read(tmp_path / "net.asterism").tensors
    np.testing.assert_array_equal(found["w"], held["w"])


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (node("Resize", ["x", "", "s"], mode="cubic"), "onnx.Resize by cubic pixels"),
        (node("ReduceMean", ["x"]), "onnx.ReduceMean along the batch"),
        (node("FusedConv", ["x", "s"], domain="com.microsoft"), "com.microsoft.FusedConv"),
        (node("Transpose", ["x"], perm=[0, 0, 0, 0]), "onnx.Transpose in the order"),
        (node("Conv", ["x", "x"]), "onnx.Conv with numbers that are computed"),
        (node("Relu", ["nowhere"]), "onnx.Relu"),
        (node("Concat", ["x", "x"], axis=99), "onnx.Concat along the batch"),
        (node("Cast", ["x"], to=TensorProto.INT64), "onnx.Cast of floats to whole numbers"),
    ],
)
def test_a_form_that_is_missing_is_named(made: Any, name: str, tmp_path: Path) -> None:
    found = model([made], {"x": [BATCH, 3, 4, 4]}, {"s": np.float32([1, 1, 2, 2])})
    assert name in missing(found, tmp_path)


@pytest.mark.parametrize("op", ["QLinearConv", "QuantizeLinear", "ConvInteger", "MatMulInteger"])
def test_quantised_networks_are_refused(op: str, tmp_path: Path) -> None:
    refused(model([node(op, ["x"])], {"x": [BATCH, 2]}), tmp_path, f"quantised \\({op}\\).*--bits")


@pytest.mark.parametrize("op", ["Loop", "Scan"])
def test_loops_are_refused(op: str, tmp_path: Path) -> None:
    refused(model([node(op, ["x"])], {"x": [BATCH, 2]}), tmp_path, f"loop \\({op}\\)")


def test_a_choice_by_the_data_is_refused(tmp_path: Path) -> None:
    nodes = [node("Equal", ["x", "x"], ["same"]), node("If", ["same"])]
    refused(model(nodes, {"x": [BATCH, 2]}), tmp_path, "chooses by its data.*--fix")


def test_weights_in_another_file_are_not_looked_for(tmp_path: Path) -> None:
    found = plain()
    tensor = found.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    refused(found, tmp_path, "in another file, /etc/passwd: write the network as one file")


def test_a_rank_or_sizes_that_are_open_are_asked_for(tmp_path: Path) -> None:
    found = plain()
    found.graph.input[0].type.tensor_type.ClearField("shape")
    refused(found, tmp_path, "of any number of dimensions: give the shape.*--shape")
    assert asterism.from_onnx(tmp_path / "model.onnx", shape=[2]).missing is None
    open_sizes = model([node("Relu", ["x"])], {"x": [BATCH, 3, "h", "w"]})
    refused(open_sizes, tmp_path, r"\(batch, 3, h, w\): give the shape.*--shape 3,224,224")
    refused(open_sizes, tmp_path, "does not fit", shape=(4, 5, 6))
    refused(open_sizes, tmp_path, "does not fit", shape=(3, 5))
    refused(open_sizes, tmp_path, "does not fit", shape=(3, 5, 0))
    refused(open_sizes, tmp_path, "no input y, but x", shape={"y": (3, 5, 6)})
    network = asterism.from_onnx(tmp_path / "model.onnx", shape={"x": (3, 5, 6)})
    assert network.graph.input_shape == (3, 5, 6)


def test_old_operators_sparse_tensors_and_texts_are_refused(tmp_path: Path) -> None:
    refused(plain(opset=6), tmp_path, "version 6, and 7 is the oldest")
    found = plain()
    found.graph.sparse_initializer.add()
    refused(found, tmp_path, "sparse tensors")
    found = plain()
    found.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    refused(found, tmp_path, "the input x is of text")
    found = plain()
    found.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(found.graph.input[0].type))
    refused(found, tmp_path, "the input x is no tensor")


def test_files_that_are_none_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    for data in (b"", b"no protobuf", bytes(range(256)), plain().SerializeToString()[:-9]):
        path.write_bytes(data)
        with pytest.raises(FormatError, match="model.onnx.*damaged"):
            asterism.from_onnx(path)
    with pytest.raises(InputError, match=r"cannot read .*nowhere.onnx"):
        asterism.from_onnx(tmp_path / "nowhere.onnx")
    monkeypatch.setattr(reading, "MAX_BYTES", 10)
    refused(plain(), tmp_path, "an ONNX file at most 10")


def test_tensors_that_are_damaged_are_refused(tmp_path: Path) -> None:
    found = plain()
    found.graph.initializer[0].raw_data += b"more"
    refused(found, tmp_path, "the tensor w is damaged")
    found.graph.initializer[0].dims[:] = [2**40, 2**40]
    refused(found, tmp_path, "impossible shape")


def test_the_package_is_asked_for_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"need the package onnx: pip install '.*\[from-onnx\]'"):
        asterism.from_onnx(write(plain(), tmp_path))


def why_not(path: Path) -> str | None:
    """Why a file cannot be read, or run."""
    try:
        return asterism.from_onnx(path).missing
    except InputError as error:
        return str(error)


def doubling(count: int) -> list[Any]:
    """Constants that grow without end."""
    steps = [node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}"], axis=0) for i in range(count)]
    return [*steps, node("Add", ["x", f"c{count}"])]


HOSTILE = {
    "doubling": doubling(60),
    "filled": [node("ConstantOfShape", ["big"], ["a"]), node("Add", ["x", "a"])],
    "expanded": [node("Expand", ["c0", "big"], ["a"]), node("Add", ["x", "a"])],
    "tiled": [node("Tile", ["big", "big"], ["a"]), node("Add", ["x", "a"])],
    "ranged": [node("Range", ["zero", "huge", "one"], ["a"]), node("Add", ["x", "a"])],
    "many casts": [
        *(node("Cast", ["large"], [f"a{i}"], to=1) for i in range(3000)),
        node("Add", ["x", "c0"]),
    ],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_constants_cannot_take_the_memory(name: str, tmp_path: Path) -> None:
    held = {
        "c0": np.float32([1]), "big": np.int64([2**20, 2**20]), "zero": np.int64(0),
        "huge": np.int64(2**60), "one": np.int64(1), "large": np.zeros(2**16, np.float16),
    }  # fmt: skip
    found = model(HOSTILE[name], {"x": [BATCH, 1]}, held)
    path = write(found, tmp_path)
    assert "computes more numbers from its constants" in why_not(path)


@pytest.mark.parametrize(
    "made",
    [
        node("Pad", ["x", "pads"]),
        node("Tile", ["x", "repeats"]),
        node("Expand", ["x", "sizes"]),
        node("Resize", ["x", "", "", "sizes"], mode="nearest"),
        node("Conv", ["x", "w"], pads=[2**30] * 4),
        node("Conv", ["x", "w"], dilations=[2**40] * 2),
        node("MaxPool", ["x"], kernel_shape=[2**30, 2**30], pads=[2**30] * 4),
        node("OneHot", ["x", "many", "pair"]),
    ],
    ids=lambda made: made.op_type,
)
def test_values_cannot_take_the_memory(made: Any, tmp_path: Path) -> None:
    held = {
        "pads": np.int64([0, 0, 0, 0, 0, 0, 2**30, 2**30]), "repeats": np.int64([1, 1, 2**20, 1]),
        "sizes": np.int64([1, 1, 2**20, 2**20]), "w": np.ones((1, 1, 2, 2), np.float32),
        "many": np.int64(2**40), "pair": np.float32([0, 1]),
    }  # fmt: skip
    path = write(model([made], {"x": [BATCH, 1, 1, 1]}, held), tmp_path)
    assert why_not(path)


GOOD = model(
    [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["b"]),
        node("Shape", ["b"], ["s"]), node("Slice", ["s", "i0", "i1"], ["n"]),
        node("Concat", ["n", "m"], ["sizes"], axis=0), node("Reshape", ["b", "sizes"], ["c"]),
        node("Gemm", ["c", "v", "u"], transB=1),
    ],
    {"x": [BATCH, 1, 4, 4]},
    {
        "w": np.ones((2, 1, 3, 3), np.float32), "i0": np.int64([0]), "i1": np.int64([1]),
        "m": np.int64([-1]), "v": np.ones((3, 32), np.float32), "u": np.ones(3, np.float32),
    },
).SerializeToString()  # fmt: skip


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_an_error_of_ours_or_a_network(
    data: st.DataObject, tmp_path: Path
) -> None:
    changed = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] = data.draw(st.integers(0, 255))
    path = tmp_path / "model.onnx"
    path.write_bytes(changed)
    try:
        network = asterism.from_onnx(path)
        if network.missing is None:
            network.net()
    except InputError:
        pass
