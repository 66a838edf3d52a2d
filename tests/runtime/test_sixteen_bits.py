"""Convolutions in whole numbers of 16 bits: near to floats, and alike by all kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import asterism
import asterism.kernels.library as library
import asterism.runtime.choice.cost as cost
import asterism.runtime.sixteen_bits as sixteen_bits
from asterism.errors import InputError
from asterism.graph.capture import capture
from asterism.graph.network import Graph, decode, encode
from asterism.runtime import Net, load
from asterism.runtime.ranges import with_ranges
from asterism.runtime.sixteen_bits import LARGEST, is_short

pytestmark = pytest.mark.skipif(library.load() is None, reason="the kernels are not built")


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In 16 bits wherever it can be done, also where something else is faster."""
    monkeypatch.setattr(sixteen_bits, "CONVERTED", -1.0)
    monkeypatch.setattr(sixteen_bits, "FASTER", frozenset(library.LEVELS))
    with cost.planning_for(cost.Machine(only=frozenset(["conv planes"]))):
        yield


class Residual(nn.Module):
    """Strides, paddings, a sum with a shortcut, and convolutions without an activation."""

    def __init__(self, channels: int, stride: int, kernel: int, groups: int) -> None:
        super().__init__()
        rest = {"padding": kernel // 2, "groups": groups}
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, kernel, stride, **rest)
        self.third = nn.Conv2d(channels, channels, 3, padding=1)
        self.short = nn.Conv2d(channels, channels, 1, stride)
        self.head = nn.Linear(channels, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        y = self.third(torch.relu(self.second(x)))
        y = torch.relu(y + self.short(x)[..., : y.shape[2], : y.shape[3]])
        made: Tensor = self.head(y.mean((2, 3)))
        return made


def sparse(model: nn.Module, density: float) -> nn.Module:
    for param in model.parameters():
        if param.ndim > 2:
            param.data *= torch.rand_like(param) < density
    return model.eval()


def both(model: nn.Module, x: Tensor) -> tuple[Net, Net]:
    """The network in floats, and in 16 bits with ranges found on `x`."""
    graph = capture(model, x[:1])
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    return Net(graph, tensors), Net(with_ranges(graph, tensors, [x.numpy()]), tensors)


def short_layers(net: Net) -> int:
    return sum(map(is_short, net.plans[0].steps))


@settings(max_examples=25, deadline=None)
@given(
    channels=st.sampled_from([4, 8, 12]),
    stride=st.sampled_from([1, 2, 3]),
    kernel=st.sampled_from([1, 3, 5]),
    depthwise=st.booleans(),
    size=st.integers(5, 40),
    density=st.sampled_from([0.0, 0.05, 0.3]),
    batch=st.sampled_from([1, 3, 40]),
    seed=st.integers(0, 99),
)
def test_answers_are_near_those_of_floats(
    channels: int,
    stride: int,
    kernel: int,
    depthwise: bool,
    size: int,
    density: float,
    batch: int,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    groups = channels if depthwise else 1
    model = sparse(Residual(channels, stride, kernel, groups), density)
    x = torch.randn(max(batch, 8), 3, size, size + 3)
    floats, short = both(model, x)
    expected, found = (net(x[:batch].numpy()) for net in (floats, short))
    largest = max(short.graph.ranges)
    assert np.abs(found - expected).max() < 40 * largest / LARGEST


@pytest.mark.parametrize("level", library.LEVELS)
def test_every_instruction_set_gives_the_same_numbers(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = library.load()
    assert kernels is not None
    if library.LEVELS.index(level) > kernels.asterism_level():
        pytest.skip(f"no {level} here")
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, padding=1)]
    model = sparse(nn.Sequential(*convolutions), 0.2)
    x = torch.randn(5, 3, 17, 19)
    graph = both(model, x)[1].graph
    tensors = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    found = {}
    for each in ("portable", level):
        monkeypatch.setenv("ASTERISM_KERNELS", each)
        net = Net(graph, tensors)
        assert short_layers(net) == 2
        found[each] = net(x.numpy())
    np.testing.assert_array_equal(found["portable"], found[level])


def test_each_number_is_what_whole_numbers_make_of_it() -> None:
    """A convolution by hand: products rounded one by one, and their sum."""
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=True))
    model[0].weight.data.fill_(0.3)
    model[0].bias.data.fill_(-0.25)  # type: ignore[union-attr]
    x = torch.linspace(-1, 1, 64).reshape(1, 1, 8, 8)
    net = both(model, x)[1]
    assert short_layers(net) == 1
    range_in, range_out = net.graph.ranges
    scale, out = 1 / LARGEST, range_out / LARGEST
    assert range_in == 1
    whole = np.rint(x.numpy() / np.float32(scale)).astype(np.int64)
    weight, bias = round(0.3 * scale / out * 2**15), round(-0.25 / out)
    expected = (((whole * weight + 2**14) >> 15) + bias) * out
    np.testing.assert_allclose(net(x.numpy()), expected, rtol=1e-6)


def test_numbers_beyond_the_range_stay_the_largest() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False))
    model[0].weight.data.fill_(1.0)
    x = torch.linspace(-1, 1, 64).reshape(1, 1, 8, 8)
    net = both(model, x)[1]
    found = net(1000 * x.numpy())
    assert (np.sign(found) == np.sign(x.numpy())).all()
    assert 3.9 < found.max() < 4.1  # four times what the examples made


@pytest.mark.parametrize("weights", [[1.0] * 8 + [-1.0] * 8, [-1.0] * 8 + [1.0] * 8])
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_on_the_way_may_be_larger_than_any_result(weights: list[float], sign: int) -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, (1, 16), bias=False))
    model[0].weight.data = torch.tensor(weights).reshape(1, 1, 1, 16)
    x = sign * (1 - 0.1 * torch.rand(16, 1, 9, 24, generator=torch.Generator().manual_seed(0)))
    floats, short = both(model, x)
    assert short_layers(short) == 1
    expected = floats(x.numpy())
    assert np.abs(expected).max() < 1  # and eight of the products are 8
    np.testing.assert_allclose(short(x.numpy()), expected, atol=0.01)


def test_a_bias_may_be_larger_than_any_result() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, (1, 8)))
    model[0].weight.data.fill_(1)
    model[0].bias.data.fill_(-8)  # type: ignore[union-attr]
    x = 1 - 0.1 * torch.rand(16, 1, 9, 24, generator=torch.Generator().manual_seed(0))
    floats, short = both(model, x)
    np.testing.assert_allclose(short(x.numpy()), floats(x.numpy()), atol=0.01)


@pytest.mark.parametrize("size", [1e8, 1e-9])
def test_numbers_too_large_or_small_for_a_range_stay_floats(size: float, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = sparse(nn.Sequential(nn.Conv2d(1, 8, 3)), 0.3), size * torch.randn(8, 1, 9, 9)
    asterism.save(model, tmp_path / "net.asterism", example_inputs=x[:1], int16=x)
    net = load(tmp_path / "net.asterism")
    assert short_layers(net) == 0
    expected = model(x).detach().numpy()
    np.testing.assert_allclose(net(x.numpy()), expected, rtol=1e-4, atol=1e-6)


def test_weights_of_any_size_give_scales_or_stay_floats() -> None:
    layers = [nn.Conv2d(2, 2, 1, bias=False) for _ in range(14)]
    for layer in layers:
        layer.weight.data = torch.tensor([[1e10, 0], [0, 1e10]]).reshape(2, 2, 1, 1)
    model = nn.Sequential(*layers)
    graph = capture(model, torch.zeros(1, 2, 4, 4))
    graph = Graph(graph.inputs, graph.nodes, graph.outputs, (1.0,) * 15)
    net = Net(graph, {name: tensor.numpy() for name, tensor in model.state_dict().items()})
    assert 0 < short_layers(net) < 14


@pytest.mark.parametrize("count", [3, 64])
def test_what_a_layer_makes_not_finite_is_the_largest(count: int) -> None:
    class Logarithm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.conv(torch.log(x))
            return made

    model = Logarithm()
    model.conv.weight.data.fill_(0.5)
    net = both(model, torch.linspace(0.1, 1, count).reshape(1, 1, 1, count))[1]
    assert short_layers(net) == 1
    found = net(np.full((1, 1, 1, count), -1, np.float32))
    assert (found == found.flat[0]).all()
    assert found.flat[0] > 0


def test_a_network_is_saved_with_its_ranges(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = sparse(Residual(8, 2, 3, 1), 0.2)
    x = torch.randn(20, 3, 16, 16)
    plain, short = tmp_path / "plain.asterism", tmp_path / "short.asterism"
    sizes = [
        asterism.save(model, plain, example_inputs=x[:1]),
        asterism.save(model, short, example_inputs=x[:1], int16=x),
    ]
    floats, found = load(short, int16=False), load(short)
    assert sizes[1] - sizes[0] == len(found.graph.ranges)  # a byte each
    assert (short_layers(floats), short_layers(found)) == (0, 4)
    np.testing.assert_array_equal(floats(x.numpy()), load(plain)(x.numpy()))
    np.testing.assert_allclose(found(x.numpy()), floats(x.numpy()), atol=5e-3)
    assert "int16" in found.explain(x[:1].numpy())


def test_ranges_are_the_largest_magnitudes_of_the_values() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.ReLU())
    model[0].weight.data.fill_(-2.0)
    graph = capture(model, torch.zeros(1, 1, 2, 2))
    x = np.float32([[3, -4], [1, 2]]).reshape(1, 1, 2, 2)
    found = with_ranges(graph, {"0.weight": model[0].weight.detach().numpy()}, [x])
    assert found.ranges == (4.0, 0.0, 8.0)  # what is between them has no memory of its own
    assert decode(encode(found)).ranges == found.ranges


@given(ranges=st.lists(st.floats(2**-15, 2**15), min_size=2, max_size=2))
def test_a_file_keeps_ranges_within_nine_percent(ranges: list[float]) -> None:
    model = nn.Sequential(nn.ReLU())
    graph = capture(model, torch.zeros(1, 3))
    kept = decode(encode(Graph(graph.inputs, graph.nodes, graph.outputs, tuple(ranges)))).ranges
    for before, after in zip(ranges, kept, strict=True):
        assert 0.999 <= after / before < 1.0906


def test_a_network_of_words_keeps_its_floats(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 3))
    ids = torch.randint(0, 9, (8, 5))
    asterism.save(model, tmp_path / "net.asterism", example_inputs=ids[:1], int16=ids)
    net = load(tmp_path / "net.asterism")
    assert short_layers(net) == 0
    np.testing.assert_allclose(net(ids.numpy()), model(ids).detach(), atol=1e-5)


def test_examples_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1))
    x = torch.zeros(2, 1, 4, 4)
    for wrong in (torch.inf, torch.nan):
        with pytest.raises(InputError, match="not finite"):
            asterism.save(model, tmp_path / "net.asterism", example_inputs=x, int16=x + wrong)
    for nothing in ((), x[:0], 3.0, [1, 2]):
        with pytest.raises(InputError, match=r"needs a batch of examples|takes 1 inputs"):
            asterism.save(model, tmp_path / "net.asterism", example_inputs=x, int16=nothing)
    asterism.save(model, tmp_path / "net.asterism", example_inputs=x, int16=x.requires_grad_())
    with pytest.raises(InputError, match="add example_inputs"):
        asterism.save(model.state_dict(), tmp_path / "net.asterism", int16=x)
