"""Every layer against torch in float64, over random shapes, settings and densities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

import asterism.kernels.library as library
from asterism.graph.network import Graph, Node
from asterism.runtime import Net
from asterism.runtime.choice import cost
from asterism.runtime.layers.packing import shared_from
from support.properties import examples

DENSITIES = st.sampled_from([0.0, 0.02, 0.1, 0.3, 0.7, 1.0])
BATCHES = st.sampled_from([0, 1, 3, 4, 7, 33])
pytestmark = pytest.mark.usefixtures("level")


def prune(weight: Tensor, density: float) -> Tensor:
    return weight * (torch.rand_like(weight) < density)


def conv_node(layer: nn.Conv2d, value: int = 0, place: int = 0) -> Node:
    """Of the value of that number, with the weights from `place` on."""
    pairs = {name: getattr(layer, name) for name in ("stride", "padding", "dilation")}
    named = {f"{k}_{a}": v for k, pair in pairs.items() for a, v in zip("hw", pair, strict=True)}
    weights = (place,) if layer.bias is None else (place, place + 1)
    return Node("conv", (value,), weights, {**named, "groups": layer.groups})


def check_weighted(layer: nn.Module, node: Node, x: Tensor, density: float) -> None:
    """|y − ref| ≤ 1e-5·(|W||x| + |b|), as |W||x| + |b| is what rounding is relative to."""
    layer.weight.data = prune(layer.weight.data, density)
    weights = {name: tensor.numpy() for name, tensor in layer.state_dict().items()}
    net = Net(Graph(tuple(x.shape[1:]), (node,)), weights)
    found = net(x.numpy())
    exact = layer.double()
    truth = exact(x.double()).detach().numpy()
    for param in exact.parameters():
        param.data.abs_()
    scale = exact(x.double().abs()).detach().numpy()
    assert found.shape == truth.shape
    assert found.dtype == np.float32
    assert (np.abs(found - truth) <= 1e-5 * scale + 1e-30).all()


@examples(150)
@given(st.data())
def test_convolutions(data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 99)))
    draw = data.draw
    groups = draw(st.sampled_from([1, 1, 2, 5]))
    inputs, outputs = groups * draw(st.integers(1, 5)), groups * draw(st.integers(1, 9))
    kernel = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    stride, padding = (
        draw(st.tuples(st.integers(a, b), st.integers(a, b))) for a, b in ((1, 3), (0, 3))
    )
    dilation = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    size = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    for n, k, p, d in zip(size, kernel, padding, dilation, strict=True):
        assume(n + 2 * p > d * (k - 1))
    layer = nn.Conv2d(
        inputs, outputs, kernel, stride, padding, dilation, groups, bias=draw(st.booleans())
    )
    node = conv_node(layer)
    x = torch.randn(draw(BATCHES), inputs, *size)
    check_weighted(layer, node, x, draw(DENSITIES))


KERNELS = {
    "sparse": ["CONV_SPARSE"],
    "dense": ["CONV_DENSE"],
    "rows": ["ROWS_SPARSE", "ROWS_SHARED", "ROWS_SHIFT", "ROWS_PACK"],
    "columns": [
        *("COLUMNS_SPARSE", "COLUMNS_FAR", "COLUMNS_FARTHEST", "COLUMNS_SHARED", "TURN"),
    ],
    "planes": ["PLANES_SPARSE", "PLANES_FAR"],
    "quads": ["PLANES_DENSE"],
    "places": ["PLACES_DENSE", "PLACES_3X3", "PLACES_DEPTHWISE"],
}


def make_cheap(patch: pytest.MonkeyPatch, kernel: str) -> None:
    """Has a kernel taken wherever it can be."""
    for constant in KERNELS[kernel]:
        by_lanes = getattr(cost, constant)
        cheap = dict.fromkeys(by_lanes, -1e6) if isinstance(by_lanes, dict) else -1e6
        patch.setattr(cost, constant, cheap)


@pytest.mark.parametrize("kernel", KERNELS)
@examples(40)
@given(st.data())
def test_every_kernel_convolves_rectifies_and_pools(kernel: str, data: st.DataObject) -> None:
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 99)))
    groups = draw(st.integers(1, 2))
    inputs, extent = groups * draw(st.integers(1, 10)), draw(st.integers(1, 5))
    pair = st.tuples(st.integers(1, 2), st.integers(1, 2))
    stride, dilation, padding = draw(pair), draw(pair), draw(st.integers(0, 2))
    size = draw(st.tuples(st.integers(11, 20), st.integers(11, 140)))
    layer = nn.Conv2d(inputs, 6, extent, stride, padding, dilation, groups)
    layer.weight.data = prune(layer.weight.data, draw(DENSITIES))
    node = conv_node(layer)
    pool = Node("max_pool", (2,), settings={"kernel_h": 2, "kernel_w": 2})
    nodes = (node, Node("relu", (1,)), pool)[: draw(st.integers(2, 3))]
    x = torch.randn(draw(BATCHES.filter(bool)), inputs, *size)
    truth = layer(x).relu()
    if len(nodes) == 3:
        truth = nn.functional.max_pool2d(truth, 2)
    weights = {name: tensor.numpy() for name, tensor in layer.state_dict().items()}
    with pytest.MonkeyPatch.context() as patch:
        make_cheap(patch, kernel)
        net = Net(Graph(tuple(x.shape[1:]), nodes), weights)
        found = net(x.numpy())  # which plans for batches, if it is one
        plans = net.plans if library.load() is not None else ()
    np.testing.assert_allclose(found, truth.detach().numpy(), rtol=1e-4, atol=1e-5)
    if layer.weight.count_nonzero() and plans:
        taken = {choice.kernel for plan in plans for choice in plan.choices.values()}
        by_rows = net.level >= 1 and stride == (1, 1) and padding < extent and extent > 1
        possible = {
            "rows": by_rows,
            "columns": not padding,
            "dense": groups == 1,
            "planes": len(nodes) == 2,
            "quads": len(nodes) == 2 and groups == 1,
            "places": len(nodes) == 2 and groups == 1 and not padding,
        }.get(kernel, True)
        assert kernel in taken or not possible


@examples(40)
@given(st.data())
def test_depthwise_and_pointwise_ones_go_place_by_place(data: st.DataObject) -> None:
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 99)))
    channels, outputs = draw(st.integers(2, 40)), draw(st.integers(1, 40))
    extent, size = draw(st.integers(1, 4)), draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    usual = draw(st.booleans())  # of the kind that has a kernel of its own
    stride, padding, dilation = (1, 1, 1) if usual else draw(st.tuples(*[st.integers(1, 2)] * 3))
    extent = 3 if usual else extent
    assume(min(size) + 2 * padding > dilation * (extent - 1))
    deep = nn.Conv2d(channels, channels, extent, stride, padding, dilation, channels)
    flat, density = nn.Conv2d(channels, outputs, 1), draw(DENSITIES)
    for layer in (deep, flat):
        layer.weight.data = prune(layer.weight.data, density)
    model = nn.Sequential(deep, nn.ReLU(), flat, nn.Hardswish())
    nodes = (conv_node(deep), Node("relu", (1,)), conv_node(flat, 2, 2), Node("hard_swish", (3,)))
    out = model(torch.zeros(1, channels, *size)).shape[2:]
    whole = {"kernel_h": out[0], "kernel_w": out[1]}
    ends = {  # which read what lies place by place as it lies
        "adaptive_avg_pool": ({"size_h": 1, "size_w": 1}, nn.AdaptiveAvgPool2d(1)),
        "mean": ({"dim": 2, "count": 2}, nn.AdaptiveAvgPool2d(1)),
        "avg_pool": ({**whole, "divisor": 3}, nn.AvgPool2d(out, divisor_override=3)),
        "max_pool": (whole, nn.MaxPool2d(out)),
    }
    if end := draw(st.sampled_from([None, *ends])):
        settings, layer = ends[end]
        nodes, model = (*nodes, Node(end, (4,), settings=settings)), model.append(layer)
    x = torch.randn(draw(BATCHES.filter(bool)), channels, *size)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    with pytest.MonkeyPatch.context() as patch:
        make_cheap(patch, "places")
        net = Net(Graph((channels, *size), nodes), weights)
        found = net(x.numpy())
        plans = net.plans if library.load() is not None else ()
    truth = model(x).detach().numpy()
    np.testing.assert_allclose(found, truth, rtol=1e-4, atol=1e-5 * max(1, np.abs(truth).max()))
    for plan in plans:
        assert all(choice.kernel == "places" for choice in plan.choices.values())
        turns = [step for step in plan.steps if step.kernel == "TURN" and step.layer.place > 2]
        assert bool(turns) == (end in (None, "max_pool"))


class Branches(nn.Module):
    """Convolutions one after the other, with sums of what they make, in any layout."""

    def __init__(self, draw: st.DrawFn, inputs: int) -> None:
        super().__init__()
        self.first = self.conv(draw, inputs, 8, 1)
        self.second = self.conv(draw, 8, 8, 1)
        self.down = self.conv(draw, 8, 12, draw(st.integers(1, 3)))
        self.side = nn.Conv2d(8, 12, 1, self.down.stride)
        self.deep = nn.Conv2d(12, 12, 3, 1, draw(st.integers(0, 4)), groups=12)
        self.relu, self.pool = draw(st.booleans()), nn.AdaptiveAvgPool2d(draw(st.integers(1, 2)))

    def conv(self, draw: st.DrawFn, inputs: int, outputs: int, stride: int) -> nn.Conv2d:
        """Its result is as large as that of a 1×1 convolution."""
        extent = draw(st.sampled_from([1, 3, 5]))
        return nn.Conv2d(inputs, outputs, extent, stride, extent // 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).clamp(-1, 1)
        x = self.second(x) + x
        x = x.relu() if self.relu else x
        x = (self.down(x) + self.side(x)).relu()
        x = nn.functional.hardswish(self.deep(x))
        return torch.cat([self.pool(x).flatten(1), x.flatten(1)], 1)

    def nodes(self) -> tuple[Node, ...]:
        """The same as layers of a graph."""
        clamp, pool = {"low": -1.0, "high": 1.0}, self.pool.output_size
        begin = [
            *(conv_node(self.first), Node("clamp", (1,), settings=clamp)),
            *(conv_node(self.second, 2, 2), Node("add", (3, 2))),
        ]
        begin += [Node("relu", (4,))] if self.relu else []
        last = len(begin)
        return (
            *begin,
            *(conv_node(self.down, last, 4), conv_node(self.side, last, 6)),
            *(Node("add", (last + 1, last + 2)), Node("relu", (last + 3,))),
            *(conv_node(self.deep, last + 4, 8), Node("hard_swish", (last + 5,))),
            Node("adaptive_avg_pool", (last + 6,), settings={"size_h": pool, "size_w": pool}),
            *(Node("flatten", (last + 7,)), Node("flatten", (last + 6,))),
            Node("cat", (last + 8, last + 9)),
        )


@examples(25)
@given(st.data())
def test_convolutions_follow_each_other_and_add(data: st.DataObject) -> None:
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 99)))
    inputs, size = draw(st.integers(1, 3)), (draw(st.integers(1, 20)), draw(st.integers(1, 40)))
    model = Branches(draw, inputs).eval()
    density = draw(DENSITIES)
    for param in model.parameters():
        if param.ndim > 1:
            param.data = prune(param.data, density)
    try:
        model(torch.zeros(1, inputs, *size))
    except RuntimeError:  # smaller than the kernel
        assume(False)
    x = torch.randn(draw(BATCHES.filter(bool)), inputs, *size)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    with pytest.MonkeyPatch.context() as patch:
        for constant in KERNELS[
            draw(st.sampled_from(["planes", "quads", "rows", "sparse", "places"]))
        ]:
            found = getattr(cost, constant)
            cheap = dict.fromkeys(found, -1e6) if isinstance(found, dict) else -1e6
            patch.setattr(cost, constant, cheap)
        made = Net(Graph((inputs, *size), model.nodes()), weights)(x.numpy())
    truth = model(x).detach().numpy()
    np.testing.assert_allclose(made, truth, rtol=1e-4, atol=1e-5 * max(1, np.abs(truth).max()))


@given(
    live=st.lists(st.booleans(), min_size=1, max_size=12),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 3),
)
def test_every_load_is_shared_within_reach(live: list[bool], stride: int, dilation: int) -> None:
    first = shared_from(np.array([live]), stride, dilation)[0].tolist()
    begun = set[int]()
    for place, begin in ((k * dilation, first[k]) for k, alive in enumerate(live) if alive):
        within = {p for p in begun if (place - p) % stride == 0 and place - p < 3 * stride}
        assert begin == max(within, default=place)
        begun.add(begin)


@examples(40)
@given(st.data())
def test_convolutions_of_one_dimension(data: st.DataObject) -> None:
    draw = data.draw
    torch.manual_seed(draw(st.integers(0, 99)))
    kernel, stride, padding = (
        draw(st.integers(1, 20)),
        draw(st.integers(1, 4)),
        draw(st.integers(0, 9)),
    )
    length = draw(st.integers(max(1, kernel - 2 * padding), 300))
    layer = nn.Conv1d(3, 6, kernel, stride, padding, groups=draw(st.sampled_from([1, 3])))
    node = Node(
        "conv", (0,), (0, 1), {"stride_w": stride, "padding_w": padding, "groups": layer.groups}
    )
    check_weighted(layer, node, torch.randn(draw(BATCHES), 3, length), draw(DENSITIES))


@examples(60)
@given(st.integers(1, 90), st.integers(1, 70), BATCHES, DENSITIES, st.booleans(), st.integers(0, 9))
def test_fully_connected(
    inputs: int, outputs: int, batch: int, density: float, rows: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    layer = nn.Linear(inputs, outputs)
    x = torch.randn(batch, 5, inputs) if rows else torch.randn(batch, inputs)
    check_weighted(layer, Node("linear", (0,), (0, 1)), x, density)


def test_a_large_batch() -> None:
    check_weighted(nn.Linear(64, 31), Node("linear", (0,), (0, 1)), torch.randn(1000, 64), 0.1)


POOLS = {"max_pool": nn.MaxPool2d, "avg_pool": nn.AvgPool2d}


@examples(80)
@given(st.data())
def test_pooling(data: st.DataObject) -> None:
    draw, op = data.draw, data.draw(st.sampled_from(sorted(POOLS)))
    kernel = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    stride = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    padding = draw(st.integers(0, kernel[0] // 2)), draw(st.integers(0, kernel[1] // 2))
    size = draw(st.integers(4, 20)), draw(st.integers(4, 20))
    ceil, extra = draw(st.booleans()), {}
    ours = {"ceil": int(ceil)}
    if op == "max_pool":
        dilation = draw(st.integers(1, 2))
        assume(min(size) > dilation * (max(kernel) - 1))
        extra, ours = (
            {"dilation": dilation},
            {**ours, "dilation_h": dilation, "dilation_w": dilation},
        )
    else:
        extra = {
            "count_include_pad": draw(st.booleans()),
            "divisor_override": draw(st.none() | st.integers(1, 5)),
        }
        ours |= {
            "count_padding": int(extra["count_include_pad"]),
            "divisor": extra["divisor_override"] or 0,
        }
    for name, pair in {"kernel": kernel, "stride": stride, "padding": padding}.items():
        ours |= {f"{name}_h": pair[0], f"{name}_w": pair[1]}
    x = torch.randn(draw(BATCHES), 3, *size)
    layer = POOLS[op](kernel, stride, padding, ceil_mode=ceil, **extra)
    found = Net(Graph(tuple(x.shape[1:]), (Node(op, (0,), settings=ours),)), {})(x.numpy())
    np.testing.assert_allclose(found, layer(x).numpy(), rtol=1e-5, atol=1e-6)


@examples(30)
@given(st.integers(1, 15), st.integers(1, 15), st.integers(1, 9), st.integers(1, 9))
def test_adaptive_pooling(height: int, width: int, rows: int, columns: int) -> None:
    x = torch.randn(2, 3, height, width)
    for op, layer in {
        "adaptive_avg_pool": nn.AdaptiveAvgPool2d,
        "adaptive_max_pool": nn.AdaptiveMaxPool2d,
    }.items():
        node = Node(op, (0,), settings={"size_h": rows, "size_w": columns})
        found = Net(Graph((3, height, width), (node,)), {})(x.numpy())
        truth = layer((rows, columns))(x).numpy()
        np.testing.assert_allclose(found, truth, rtol=1e-5, atol=1e-6)


ELEMENTWISE = [
    (Node("relu", (0,)), nn.ReLU()),
    (Node("gelu", (0,)), nn.GELU()),
    (Node("gelu", (0,), settings={"tanh": 1}), nn.GELU(approximate="tanh")),
    (Node("silu", (0,)), nn.SiLU()),
    (Node("sigmoid", (0,)), nn.Sigmoid()),
    (Node("tanh", (0,)), nn.Tanh()),
    (Node("leaky_relu", (0,), settings={"slope": 0.2}), nn.LeakyReLU(0.2)),
    (Node("clamp", (0,), settings={"low": -0.5, "high": 0.7}), nn.Hardtanh(-0.5, 0.7)),
    (Node("softmax", (0,)), nn.Softmax(-1)),
    (Node("softmax", (0,), settings={"dim": -2}), nn.Softmax(-2)),
    (Node("layer_norm", (0,), settings={"rank": 2}), nn.LayerNorm((5, 7))),
    (Node("permute", (0,), settings=(3, 1, 2)), lambda x: x.permute(0, 3, 1, 2)),
    (Node("flatten", (0,), settings={"start": 1, "end": 2}), lambda x: x.flatten(1, 2)),
    (Node("reshape", (0,), settings=(15, 7)), lambda x: x.reshape(-1, 15, 7)),
    (Node("add", (0, 0)), lambda x: x + x),
    (Node("mul", (0, 0)), lambda x: x * x),
    (Node("cat", (0, 0, 0), settings={"dim": 2}), lambda x: torch.cat([x, x, x], 2)),
]


@pytest.mark.parametrize(("node", "layer"), ELEMENTWISE)
@pytest.mark.parametrize("batch", [0, 1, 5, 40])
def test_the_other_layers(node: Node, layer, batch: int) -> None:
    x = torch.randn(batch, 3, 5, 7) * 3
    found = Net(Graph((3, 5, 7), (node,)), {})(x.numpy())
    np.testing.assert_allclose(found, layer(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_batch_norm_alone() -> None:
    layer = nn.BatchNorm2d(3).eval()
    layer.running_mean, layer.running_var = torch.randn(3), torch.rand(3) + 0.1
    weights = {name: tensor.numpy() for name, tensor in layer.state_dict().items()}
    x = torch.randn(6, 3, 5, 7)
    node = Node("batch_norm", (0,), (0, 1, 2, 3))
    found = Net(Graph((3, 5, 7), (node,)), weights)(x.numpy())
    np.testing.assert_allclose(found, layer(x).detach().numpy(), rtol=1e-4, atol=1e-5)
