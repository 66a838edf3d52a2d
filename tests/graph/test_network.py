"""Graphs survive their bytes, and bytes that are no graph are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import FormatError
from asterism.graph.network import VERSION, Graph, Node, decode, encode
from asterism.graph.operations import OPERATIONS

LENET5 = Graph(
    (1, 28, 28),
    (
        Node("conv", (0,), (0, 1)),
        Node("max_pool", (1,), settings={"kernel_h": 2, "kernel_w": 2}),
        Node("conv", (2,), (2, 3)),
        Node("max_pool", (3,), settings={"kernel_h": 2, "kernel_w": 2}),
        Node("flatten", (4,)),
        Node("linear", (5,), (4, 5)),
        Node("relu", (6,)),
        Node("linear", (7,), (6, 7)),
    ),
)
# These bytes are in files: a change here needs a new version.
GOLDEN = "0103011c1c0803010100070204040301010007020404290005010113050101"


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes: list[Node] = []
    for place in range(draw(st.integers(0, 6))):
        op = draw(st.sampled_from([*OPERATIONS, "aten.erf.default", "ünknown"]))
        operation = OPERATIONS.get(op)
        arity = operation.arity if operation and operation.arity > 0 else draw(st.integers(0, 3))
        inputs = tuple(draw(st.integers(0, place)) for _ in range(arity))
        if operation is None:
            nodes.append(Node(op, inputs))
            continue
        weights = tuple(draw(st.none() | st.integers(0, 300)) for _ in range(operation.weights))
        settings = (
            tuple(draw(st.lists(st.integers(-5, 1000), max_size=8)))
            if operation.free
            else {
                name: draw(
                    st.floats(-1e6, 1e6) if isinstance(value, float) else st.integers(-9, 999)
                )
                for name, value in operation.defaults.items()
            }
        )
        nodes.append(Node(op, inputs, weights, settings))
    shape = tuple(draw(st.lists(st.integers(0, 2**31 - 1), max_size=8)))
    return Graph(shape, tuple(nodes))


@given(graphs())
def test_a_graph_survives_its_bytes(graph: Graph) -> None:
    assert decode(encode(graph)) == graph


def test_lenet5_takes_a_few_dozen_bytes_and_always_the_same() -> None:
    assert len(encode(LENET5)) < 36
    assert decode(encode(LENET5)) == LENET5
    assert encode(LENET5).hex() == GOLDEN


@given(st.binary(max_size=60))
def test_noise_is_refused_or_a_graph(data: bytes) -> None:
    for start in (data, bytes([VERSION]) + data):
        try:
            graph = decode(start)
        except FormatError:
            continue
        assert decode(encode(graph)) == graph


@given(graphs(), st.data())
def test_a_cut_graph_is_refused(graph: Graph, data: st.DataObject) -> None:
    whole = encode(graph)
    with pytest.raises(FormatError):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(FormatError, match="left after"):
        decode(whole + b"\0")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ends early"),
        (b"\x02", "version 2"),
        (b"\x01\xff\xff\xff\xff\x7f", "too large"),
        (b"\x01\x00\xff\xff\x03", "announces"),
        (b"\x01\x09", "dimensions"),
        (b"\x01\x00\x01\x7e", "code 63"),
        (b"\x01\x00\x01\x12\x05", "does not exist"),
        (b"\x01\x00\x01\x01\x02\xff\xff", "UTF-8"),
        (b"\x01\x00\x01\x23", "takes two"),
    ],
)
def test_the_error_says_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode(data)
