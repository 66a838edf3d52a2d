"""Whole networks, as people have them, without their dead units, in C and in JavaScript."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from asterism.export.steps.dead import without_dead_units
from asterism.export.steps.portable import portable
from asterism.export.web.module import module
from asterism.graph.capture import capture
from asterism.runtime import Net
from support import in_node
from support.compiled_c import needs_compiler, run
from support.exported import Networks, assert_close
from support.networks import NETWORKS, make, net_of
from support.transformers import GPT, WORDS, prune
from support.vision import VISION, make_vision

pytestmark = pytest.mark.slow
# With sanitizers straight code takes a compiler minutes: two networks are enough.
FOR_SPEED = ("lenet5", "mobilenet v2")


def whole(speed: bool) -> Networks:
    made = {name: make(name) for name in NETWORKS}
    made |= {name: make_vision(name, 0.2) for name in VISION}
    names = FOR_SPEED if speed else made
    nets = {name: net_of(*made[name]) for name in names}
    found: Networks = {}
    for name, net in nets.items():
        x = np.random.default_rng(0).standard_normal((2, *net.input_shape)).astype(np.float32)
        found[f"of_{name}".replace("-", "_").replace(" ", "_")] = _exported(net, x, speed)
    torch.manual_seed(0)
    model = prune(GPT()).eval()
    words = np.random.default_rng(0).integers(0, WORDS, (2, 6))
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    found["of_words"] = _exported(
        Net(capture(model, torch.from_numpy(words)), tensors), words, speed
    )
    return found


def _exported(net: Net, x: np.ndarray, speed: bool) -> tuple:
    network = portable(*without_dead_units(net.graph, net.weights), speed)
    return network, x, net(x).reshape(2, -1)


@needs_compiler
@pytest.mark.parametrize("speed", [False, True], ids=["size", "speed"])
def test_c_answers_as_the_runtime_does(speed: bool, tmp_path: Path) -> None:
    networks = whole(speed)
    plans, batches = ({name: each[i] for name, each in networks.items()} for i in (0, 1))
    found = run(plans, batches, tmp_path, speed)
    for name, (_, _, truth) in networks.items():
        assert_close(found[name], truth, name, 2e-5)  # of dozens of layers


@in_node.needs_node
def test_javascript_answers_as_the_runtime_does(tmp_path: Path) -> None:
    networks = whole(speed=False)
    modules = {name: module(each[0], "")[0] for name, each in networks.items()}
    found = in_node.run(modules, {name: each[1] for name, each in networks.items()}, tmp_path)
    for name, (_, _, truth) in networks.items():
        assert_close(found[name], truth, name, 1e-4)
