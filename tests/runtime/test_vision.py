"""Whole vision networks: saved, loaded without torch, and compared with torch."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import asterism
import asterism.kernels.library as library
from asterism.graph.compaction import compact
from asterism.runtime import load
from support.networks import answer
from support.vision import VISION, make_vision


def agrees(found: np.ndarray, truth: np.ndarray) -> None:
    assert found.shape == truth.shape
    near = 1e-5 * max(1, np.abs(truth).max(initial=0))
    np.testing.assert_allclose(found, truth, rtol=1e-4, atol=near)


@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("name", VISION)
def test_a_saved_network_answers_as_torch_does(name: str, density: float, tmp_path: Path) -> None:
    model, shape = make_vision(name, density)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asterism.save(model, tmp_path / "net.asterism", example_inputs=torch.zeros(1, *shape))
    net = load(tmp_path / "net.asterism")
    assert library.load() is None or "runs in numpy" not in net.explain()
    for batch in (1, 3, 40):
        x = torch.randn(batch, *shape)
        agrees(net(x.numpy()), answer(model, x))


@pytest.mark.parametrize("name", VISION)
def test_so_does_every_kind_of_kernel(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ["none"] if library.load() is None else ["none", "portable"]
    model, shape = make_vision(name, 0.2)
    asterism.save(model, tmp_path / "net.asterism", example_inputs=torch.zeros(1, *shape))
    images = [torch.randn(batch, *shape) for batch in (1, 5)]
    truth = [answer(model, x) for x in images]
    monkeypatch.setattr("asterism.runtime.net._said", True)
    for kernels in kinds:
        monkeypatch.setenv("ASTERISM_KERNELS", kernels)
        net = load(tmp_path / "net.asterism")
        for x, expected in zip(images, truth, strict=True):
            agrees(net(x.numpy()), expected)


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
