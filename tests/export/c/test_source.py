"""Exported C answers as the runtime does, for every operation and for random networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asterism.errors import InputError
from asterism.export.c.names import identifier
from asterism.export.c.source import sources
from asterism.export.steps.dead import without_dead_units
from asterism.export.steps.portable import portable
from asterism.graph.network import Graph, Input, Node
from asterism.graph.operations import OPERATIONS
from asterism.graph.stages import FusedLayer
from asterism.runtime import Net, load
from support.compiled_c import needs_compiler, run
from support.exported import assert_close, of_examples, of_random
from support.paths import ROOT


@needs_compiler
@pytest.mark.parametrize("speed", [False, True], ids=["size", "speed"])
@pytest.mark.parametrize("make", [of_examples, of_random])
def test_c_answers_as_the_runtime_does(make, speed: bool, tmp_path: Path) -> None:
    networks = make(speed)
    found = run(
        {name: each[0] for name, each in networks.items()},
        {name: each[1] for name, each in networks.items()},
        tmp_path,
        speed,
    )
    for name, (_, _, truth) in networks.items():
        assert_close(found[name], truth, name)


RECORD = ROOT / "experiments/file/lenet5-record@1239-0.asterism"


@pytest.fixture(scope="module")
def record() -> Net:
    return load(RECORD)


@needs_compiler
@pytest.mark.parametrize(
    "speed",
    # Written out weight by weight, it takes the compiler many seconds.
    [pytest.param(False, id="size"), pytest.param(True, id="speed", marks=pytest.mark.slow)],
)
def test_the_record_fits_where_it_has_to(record: Net, speed: bool, tmp_path: Path) -> None:
    network = portable(record.graph, record.weights)
    x = np.random.default_rng(0).random((20, *record.input_shape), np.float32)
    found = run({"net": network}, {"net": x}, tmp_path, speed)["net"]
    assert_close(found, record(x), "the record")
    made = sources(network, "net", "")
    given = 4 * (784 + 10)
    assert made.tables <= 4096
    assert made.workspace + given <= 16384
    assert made.work == sum(_work(record, layer) for layer in record.layers)


def _work(net: Net, layer: FusedLayer) -> int:
    places = net.shapes[layer.place + 1][1:] if layer.weight.ndim > 2 else ()
    return int(np.count_nonzero(layer.weight) * np.prod(places))


def test_the_same_network_is_the_same_text(record: Net) -> None:
    one, other = (sources(portable(record.graph, record.weights), "net", "") for _ in range(2))
    assert one == other


@needs_compiler
def test_a_dead_unit_leaves_nothing_behind(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights = [random.standard_normal(shape).astype(np.float32) for shape in ((50, 8), (3, 50))]
    weights[1][:, 5:] = 0
    graph = Graph(
        (8,), (Node("linear", (0,), (0,)), Node("relu", (1,)), Node("linear", (2,), (1,)))
    )
    network = portable(*without_dead_units(graph, weights))
    assert network.workspace == 5
    assert sources(network, "net", "").tables == 4 * (5 * 8 + 3 * 5)
    net = Net(graph, {"0": weights[0], "1": weights[1]})
    x = random.standard_normal((4, 8)).astype(np.float32)
    assert_close(run({"net": network}, {"net": x}, tmp_path)["net"], net(x), "without dead units")


@needs_compiler
def test_several_inputs_and_results_lie_side_by_side(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weight = random.standard_normal((4, 6)).astype(np.float32)
    inputs = (Input((6,)), Input((4,)))
    nodes = (Node("linear", (0,), (0,)), Node("mul", (2, 1)), Node("relu", (2,)))
    graph = Graph(inputs, nodes, (3, 4, 3, 1))
    net = Net(graph, {"w": weight})
    one, other = (random.standard_normal((5, n)).astype(np.float32) for n in (6, 4))
    x = np.concatenate([one, other], 1)
    found = run({"net": portable(graph, [weight])}, {"net": x}, tmp_path)["net"]
    assert_close(found, np.concatenate(net(one, other), 1), "several")


def test_an_operation_without_an_export_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(OPERATIONS["softmax"]), "kernels", ("SOMETHING_NEW",))
    graph = Graph((5,), (Node("relu", (0,)), Node("softmax", (1,))))
    with pytest.raises(InputError, match="there is no export of softmax"):
        portable(graph, [])


@pytest.mark.parametrize(
    ("stem", "name"),
    [("lenet-5", "lenet_5"), ("5", "net_5"), ("int", "net_int"), ("conv", "net_conv"),
     ("größe", "gr__e"), ("main", "net_main"), ("expf", "net_expf"), ("", "net")],
)  # fmt: skip
def test_a_file_name_becomes_a_name_of_c(stem: str, name: str) -> None:
    assert identifier(stem) == name
