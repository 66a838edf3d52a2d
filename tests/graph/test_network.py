"""Graphs survive their bytes, and bytes that are no graph are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import FormatError
from asterism.graph.network import SEVERAL, Graph, Input, Node, decode, encode
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


# The same for a network with two inputs, one of them ids of any number, and two outputs.
TWO = Graph(
    (Input((8,), integer=True, free=1), Input((4,))),
    (Node("linear", (1,), (0, 1)), Node("relu", (2,)), Node("add", (2, 3))),
    (4, 2),
)
GOLDEN_TWO = "02020108030104000204020305010113220100"


@st.composite
def some_input(draw: st.DrawFn) -> Input:
    shape = tuple(draw(st.lists(st.integers(0, 2**31 - 1), max_size=8)))
    return Input(shape, draw(st.booleans()), draw(st.integers(0, len(shape))))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    nodes: list[Node] = []
    given = tuple(draw(st.lists(some_input(), min_size=1, max_size=3)))
    for place in range(len(given) - 1, len(given) - 1 + draw(st.integers(0, 6))):
        op = draw(st.sampled_from([*OPERATIONS, "aten.digamma.default", "ünknown"]))
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
    last = len(given) + len(nodes) - 1
    outputs = st.lists(st.integers(0, last), min_size=1, max_size=3).map(tuple)
    return Graph(given, tuple(nodes), draw(st.just((last,)) | outputs))


@given(graphs())
def test_a_graph_survives_its_bytes(graph: Graph) -> None:
    assert decode(encode(graph)) == graph


def test_lenet5_takes_a_few_dozen_bytes_and_always_the_same() -> None:
    assert len(encode(LENET5)) < 36
    assert decode(encode(LENET5)) == LENET5
    assert encode(LENET5).hex() == GOLDEN


def test_several_inputs_and_outputs_take_a_few_bytes_and_always_the_same() -> None:
    assert encode(TWO).hex() == GOLDEN_TWO
    assert decode(encode(TWO)) == TWO


def test_one_input_and_one_output_are_written_as_ever() -> None:
    plain = Graph((Input((4,)),), (Node("relu", (0,)),), (1,))
    assert plain == Graph((4,), (Node("relu", (0,)),))
    assert encode(plain)[0] == 1
    for other in (
        Graph((Input((4,), integer=True),), plain.nodes),
        Graph((Input((4,), free=1),), plain.nodes),
        Graph((4,), plain.nodes, (0,)),
        Graph((4,), plain.nodes, (1, 1)),
    ):
        assert encode(other)[0] == SEVERAL
        assert decode(encode(other)) == other != plain


@given(st.binary(max_size=60))
def test_noise_is_refused_or_a_graph(data: bytes) -> None:
    for start in (data, *(bytes([version]) + data for version in range(1, 5))):
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
        (b"\x05", "version 5"),
        (b"\x02\x00\x00", "no inputs or no outputs"),
        (b"\x02\x01\x00\x00\x00\x00", "no inputs or no outputs"),
        (b"\x02\x01\x00\x02\x01\x00\x00", "dimension 1"),
        (b"\x02\x01\x00\x00\x01\x01\x00", "an output"),
        (b"\x01\xff\xff\xff\xff\x7f", "too large"),
        (b"\x01\x00\xff\xff\x03", "announces"),
        (b"\x01\x09", "dimensions"),
        (b"\x01\x00\x01\xfe\x01", "code 127"),
        (b"\x01\x00\x01\x12\x05", "does not exist"),
        (b"\x01\x00\x01\x01\x02\xff\xff", "UTF-8"),
        (b"\x01\x00\x01\x23", "takes 2"),
    ],
)
def test_the_error_says_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode(data)
