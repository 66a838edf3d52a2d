"""ResNets: sizes that are published, shortcuts, and that the runtime executes them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from asterism.experiments.networks import MODELS, resnet8, resnet20
from asterism.experiments.networks.resnets import Block
from support.networks import answer, net_of


@pytest.mark.parametrize(("name", "weights"), [("resnet8", 77_360), ("resnet20", 268_336)])
def test_they_have_as_many_weights_as_published(name: str, weights: int) -> None:
    found = [param.numel() for param in MODELS[name]().parameters() if param.ndim > 1]
    assert sum(found) == weights


def test_a_shortcut_without_weights_takes_every_second_pixel_and_pads_channels() -> None:
    block, x = Block(2, 4, stride=2, project=False).eval(), torch.randn(3, 2, 6, 6)
    torch.nn.init.zeros_(block.conv2.weight)
    y = block(x)
    assert torch.equal(y[:, 1:3], x[:, :, ::2, ::2].relu())
    assert not y[:, 0].any()
    assert not y[:, 3].any()


@pytest.mark.parametrize("make", [resnet8, resnet20])
def test_the_runtime_executes_them(make) -> None:
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(5, 3, 32, 32)
    np.testing.assert_allclose(
        net_of(model, (3, 32, 32))(x.numpy()), answer(model, x), rtol=1e-4, atol=1e-4
    )
