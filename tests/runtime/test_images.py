"""Any padding, any size, any transposed or three-dimensional convolution: as torch has it."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from support.networks import net_of
from support.properties import examples

SMALL = st.integers(1, 3)


class Function(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@torch.no_grad()
def check(model: nn.Module, shape: tuple[int, ...]) -> None:
    """In float32: of which pixel is the nearest, torch computes another in float64."""
    net = net_of(model.eval(), shape)
    for batch in (1, 5):
        x = torch.randn(batch, *shape)
        np.testing.assert_allclose(net(x.numpy()), model(x).numpy(), rtol=1e-4, atol=1e-5)


@examples(40)
@given(st.data())
def test_transposed_convolutions(data: st.DataObject) -> None:
    rank = data.draw(SMALL)
    each = st.tuples(*[SMALL] * rank)
    groups, stride, dilation = data.draw(st.integers(1, 2)), data.draw(each), data.draw(each)
    more = tuple(
        data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)
    )
    kernel, sizes = data.draw(each), data.draw(st.tuples(*[st.integers(1, 6)] * rank))
    padding = data.draw(st.tuples(*[st.integers(0, 2)] * rank))
    out = [
        (n - 1) * s - 2 * p + d * (k - 1) + m + 1
        for n, s, p, d, k, m in zip(sizes, stride, padding, dilation, kernel, more, strict=True)
    ]
    assume(min(out) > 0)
    make = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[rank - 1]
    sizes_of = (2 * groups, 3 * groups, kernel, stride, padding, more, groups)
    layer = make(*sizes_of, data.draw(st.booleans()), dilation)
    layer.weight.data *= torch.rand_like(layer.weight) < 0.5
    check(nn.Sequential(layer, nn.ReLU()), (2 * groups, *sizes))


@examples(25)
@given(st.data())
def test_convolutions_of_three_dimensions(data: st.DataObject) -> None:
    each = st.tuples(SMALL, SMALL, SMALL)
    sizes = data.draw(st.tuples(*[st.integers(3, 7)] * 3))
    kernel, stride, dilation = data.draw(each), data.draw(each), data.draw(each)
    padding, groups = data.draw(st.tuples(*[st.integers(0, 3)] * 3)), data.draw(st.integers(1, 2))
    reach = zip(sizes, padding, dilation, kernel, strict=True)
    assume(all(n + 2 * p > d * (k - 1) for n, p, d, k in reach))
    layer = nn.Conv3d(2 * groups, 3 * groups, kernel, stride, padding, dilation, groups)
    layer.weight.data *= torch.rand_like(layer.weight) < 0.5
    check(nn.Sequential(layer, nn.BatchNorm3d(3 * groups), nn.ReLU()), (2 * groups, *sizes))


@examples(40)
@given(st.data())
def test_images_of_another_size(data: st.DataObject) -> None:
    rank = data.draw(SMALL)
    sizes = data.draw(st.tuples(*[st.integers(1, 9)] * rank))
    linear = ("linear", "bilinear", "trilinear")[rank - 1]
    mode = data.draw(st.sampled_from(["nearest", "nearest-exact", linear]))
    aligned = data.draw(st.booleans()) if mode == linear else None
    if data.draw(st.booleans()):
        how = {"size": data.draw(st.tuples(*[st.integers(1, 20)] * rank))}
    else:
        how = {"scale_factor": data.draw(st.tuples(*[st.floats(1.0, 3.0)] * rank))}
    check(
        Function(lambda x: 1.5 * F.interpolate(x, mode=mode, align_corners=aligned, **how)),
        (2, *sizes),
    )


@examples(40)
@given(st.data())
def test_padding(data: st.DataObject) -> None:
    mode = data.draw(st.sampled_from(["constant", "reflect", "replicate", "circular"]))
    sizes = data.draw(st.tuples(*[st.integers(1, 6)] * 2))
    most = {"reflect": -1, "circular": 0}
    pads: list[int] = []
    for size in reversed(sizes):
        limit = size + most[mode] if mode in most else 7
        pads += [data.draw(st.integers(0, limit)), data.draw(st.integers(0, limit))]
    value = {"value": data.draw(st.sampled_from([0.0, -1.5]))} if mode == "constant" else {}
    check(Function(lambda x: F.pad(x, pads, mode, **value) * 1.5), (2, *sizes))


@examples(30)
@given(st.data())
def test_pooling_of_three_dimensions(data: st.DataObject) -> None:
    sizes = data.draw(st.tuples(*[st.integers(4, 8)] * 3))
    kernel = data.draw(st.tuples(SMALL, SMALL, SMALL))
    padding = tuple(data.draw(st.integers(0, k // 2)) for k in kernel)
    stride, ceil = data.draw(st.none() | st.tuples(SMALL, SMALL, SMALL)), data.draw(st.booleans())
    if data.draw(st.booleans()):
        layer: nn.Module = nn.MaxPool3d(kernel, stride, padding, ceil_mode=ceil)
    else:
        layer = nn.AvgPool3d(kernel, stride, padding, ceil, data.draw(st.booleans()))
    check(layer, (2, *sizes))
