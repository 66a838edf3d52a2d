"""Residual networks: values that several convolutions read, each in the layout that it likes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import asterism.kernels.library as library
import asterism.runtime.choice.cost as cost
from asterism.graph.capture import capture
from asterism.runtime import Net
from support.properties import examples


class Block(nn.Module):
    """Two convolutions, and what they read added to what they make."""

    def __init__(self, channels: int, extents: tuple[int, int]) -> None:
        super().__init__()
        self.one, self.two = (
            nn.Conv2d(channels, channels, extent, padding=extent // 2) for extent in extents
        )

    def forward(self, x: Tensor) -> Tensor:
        return (self.two(self.one(x).relu()) + x).relu()


class Halving(nn.Module):
    """A convolution with a stride beside every second place, with more channels of zeros."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(channels, channels + 4, 3, 2, 1)
        self.same = nn.Conv2d(channels + 4, channels + 4, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.same(self.down(x).relu())
        return (y + nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 2))).relu()


class Shortcut(nn.Module):
    """Two convolutions that read the same with a stride, each with its own kernel and padding."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down = nn.Conv2d(channels, channels + 4, 3, 2, 1)
        self.beside = nn.Conv2d(channels, channels + 4, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        return (self.down(x) + self.beside(x)).relu()


class Separable(nn.Module):
    """Channel by channel, which may be in place, and then across them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.before = nn.Conv2d(channels, channels, 1)
        self.deep = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.across = nn.Conv2d(channels, channels + 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.across(self.deep(self.before(x).relu()).relu()).relu()


class Cut(nn.Module):
    """A part of the image in a frame of zeros, with channels left out and put before it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.then = nn.Conv2d(channels + 1, channels + 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        part = x[:, 1:, ::2, 1:] if x.shape[1] > 1 else x
        framed = nn.functional.pad(part, (1, 2, 0, 1, 2 if x.shape[1] > 1 else 1, 0))
        return self.then(framed).relu()


def residual(draw: st.DrawFn, inputs: int, channels: int) -> nn.Module:
    begin = nn.Conv2d(inputs, channels, 3, padding=1)
    extents = st.tuples(*[st.sampled_from([1, 3, 3, 5])] * 2)
    blocks = [Block(channels, draw(extents)) for _ in range(draw(st.integers(1, 3)))]
    kinds: list[type[nn.Module]] = draw(
        st.lists(st.sampled_from([Halving, Shortcut, Separable, Cut]), max_size=2)
    )
    after = [kind(channels + 4 * i) for i, kind in enumerate(kinds)]
    after += [Block(channels + 4 * len(kinds), draw(extents))] if kinds else []
    after += [nn.AdaptiveAvgPool2d(1)] if draw(st.booleans()) else []
    return nn.Sequential(begin, nn.ReLU(), *blocks, *after)


def random_network(draw: st.DrawFn) -> tuple[nn.Module, Tensor]:
    """A residual network with few weights, and a batch for it."""
    torch.manual_seed(draw(st.integers(0, 99)))
    inputs, channels = draw(st.integers(1, 3)), draw(st.integers(1, 20))
    model = residual(draw, inputs, channels).eval()
    for param in model.parameters():
        if param.ndim > 1:
            param.data *= torch.rand_like(param) < draw(st.sampled_from([0.05, 0.3, 1.0]))
    batch = draw(st.sampled_from([1, 5, 34]))
    return model, torch.randn(batch, inputs, draw(st.integers(1, 20)), draw(st.integers(1, 40)))


def assert_same(model: nn.Module, x: Tensor) -> Net:
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    net = Net(capture(model, x[:1]), weights)
    truth = model(x).detach().numpy()
    scale = max(1, float(np.abs(truth).max()))
    np.testing.assert_allclose(net(x.numpy()), truth, rtol=1e-4, atol=1e-5 * scale)
    return net


@examples(60)
@given(st.data())
def test_every_layer_may_run_by_any_kernel(data: st.DataObject) -> None:
    model, x = random_network(data.draw)
    seed = data.draw(st.integers(0, 999))
    plain = cost._choose

    def choose(family: str, costs: dict[str, float], density: float, place: int) -> cost.Choice:
        """One by chance, but always the same for a layer that has the same to choose from."""
        chance = np.random.default_rng([seed, int(1e6 * density), len(costs)])
        kernel = str(chance.choice(sorted(costs)))
        return plain(family, {kernel: costs[kernel]}, density, place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "_choose", choose)
        assert_same(model, x)


@pytest.mark.skipif(library.load() is None, reason="the kernels are not built")
@pytest.mark.parametrize("width", [8, 16, 30, 32])
def test_values_stay_packed_from_row_to_row(width: int, level: str) -> None:
    """Sums are added by the convolutions, and only the network's input is packed."""
    if level in ("none", "portable"):
        pytest.skip("no kernel by rows there")
    blocks = [Block(8, (3, 3)) for _ in range(2)]
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), *blocks).eval()
    with cost.planning_for(cost.Machine(only=frozenset(["conv rows"]))):
        net = assert_same(model, torch.randn(2, 3, 9, width))
    assert [step.kernel for step in net.plans[0].steps] == ["PACK", *["CONV_ROWS"] * 5]


PLANES = cost.Machine(only=frozenset(["conv planes"]))


@pytest.mark.skipif(library.load() is None, reason="the kernels are not built")
@pytest.mark.parametrize(
    ("block", "steps"),
    [
        # Its input is sorted once for both convolutions.
        (Shortcut(8), ["SPREAD", "CONV_PLANES", "CONV_PLANES"]),
        # Two slices and channels of zeros are one copy, to where they are added.
        (Halving(8), ["SPREAD", "CONV_PLANES", "SPREAD", "CONV_PLANES"]),
        (Separable(8), ["CONV_PLANES"] * 3),
        (nn.AdaptiveAvgPool2d(1), ["POOL_AVERAGE"]),
    ],
)
def test_nothing_is_copied_twice(block: nn.Module, steps: list[str], level: str) -> None:
    if level == "none":
        pytest.skip("no steps there")
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), block).eval()
    with cost.planning_for(PLANES):
        net = assert_same(model, torch.randn(2, 3, 10, 12))
        found = [step.kernel for step in net.plans[0].steps]
    # The network's input is brought to planes; of its result the zeros may have to go.
    assert found[:2] == ["SPREAD", "CONV_PLANES"]
    assert found[2:] in (steps, [*steps, "SPREAD"])


@pytest.mark.parametrize("seed", range(3))
def test_zeros_that_single_images_keep_outlast_the_blocks_before_them(seed: int) -> None:
    """33 images are a block and a single one: their programs must not share memory."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(3, 4, 5, 2), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Conv2d(4, 4, 1, padding=1), nn.Flatten()).eval()
    for param in model.parameters():
        if param.ndim > 1:
            param.data *= torch.rand_like(param) < 0.2
    x = torch.randn(35, 3, 14, 6)
    for images in (33, 34, 35):
        assert_same(model, x[:images])


@pytest.mark.skipif(library.load() is None, reason="the kernels are not built")
def test_channel_by_channel_a_result_takes_the_place_of_its_input() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), Separable(8)).eval()
    with cost.planning_for(PLANES):
        net = assert_same(model, torch.randn(2, 3, 5, 6))
        deep = next(step for step in net.plans[0].steps if step.layer.node["groups"] == 8)
    assert deep.source is deep.out
