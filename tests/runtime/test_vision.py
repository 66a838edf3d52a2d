"""Whole vision networks: saved, loaded without torch, and compared with torch."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from torch import nn

import asterism
import asterism.kernels.library as library
from asterism import file
from asterism.graph.compaction import compact
from asterism.runtime import Net, load
from support.networks import answer
from support.vision import VISION, make_vision


def agrees(found: np.ndarray, truth: np.ndarray) -> None:
    assert found.shape == truth.shape
    near = 1e-5 * max(1, np.abs(truth).max(initial=0))
    np.testing.assert_allclose(found, truth, rtol=1e-4, atol=near)


@cache
def captured(name: str) -> bytes:
    """The graph of a network, as its file has it: it is the same at every density."""
    model, shape = make_vision(name, 1.0)
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        path = Path(folder, "net.asterism")
        asterism.save(model, path, example_inputs=torch.zeros(1, *shape))
        return file.read(path).graph


@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("name", VISION)
def test_a_saved_network_answers_as_torch_does(
    name: str, density: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every kind of kernel."""
    model, shape = make_vision(name, density)
    asterism.save(model, tmp_path / "net.asterism", graph=captured(name))
    images = [torch.randn(batch, *shape) for batch in (1, 3, 40)]
    truth = [answer(model, x) for x in images]
    net = load(tmp_path / "net.asterism")
    assert library.load() is None or "runs in numpy" not in net.explain()
    monkeypatch.setattr("asterism.runtime.net._said", True)
    for x, expected in zip(images, truth, strict=True):
        agrees(net(x.numpy()), expected)
    weights = {str(place): weight for place, weight in enumerate(net.weights)}
    for kernels in ["none"] if library.load() is None else ["none", "portable"]:
        monkeypatch.setenv("ASTERISM_KERNELS", kernels)
        other = Net(net.graph, weights)
        for x, expected in zip(images[:2], truth[:2], strict=True):
            agrees(other(x.numpy()), expected)


@pytest.mark.parametrize("name", [name for name in VISION if name != "super-resolution"])
def test_without_its_dead_units_a_network_answers_the_same(name: str) -> None:
    model, shape = make_vision(name, 1.0)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.Conv3d | nn.Linear) and len(module.weight) > 5:
                module.weight[::3] = 0
    x = torch.randn(3, *shape)
    before = answer(model, x)
    agrees(answer(compact(model.float()).model, x), before)
