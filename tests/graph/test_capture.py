"""torch.export's view of a model becomes our layers; what we do not know keeps its name."""

import pytest
import torch
from torch import Tensor, nn

from asterism.errors import FormatError, InputError
from asterism.experiments.networks import lenet5
from asterism.graph.capture import RULES, capture
from asterism.graph.network import decode, encode
from asterism.runtime import Net
from support.networks import NETWORKS, make


class Model(nn.Module):
    def __init__(self, forward) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.run = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self.layer(x))


def test_lenet5_becomes_its_eight_layers() -> None:
    graph = capture(lenet5(), torch.zeros(1, 1, 28, 28))
    ops = ["conv", "max_pool", "conv", "max_pool", "flatten", "linear", "relu", "linear"]
    assert [node.op for node in graph.nodes] == ops
    assert graph.nodes[2].weights == (2, 3)
    assert len(encode(graph)) < 36


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_is_known_and_survives(name: str) -> None:
    model, shape = make(name)
    graph = capture(model, torch.zeros(3, *shape))
    assert graph.unknown == ()
    assert decode(encode(graph)) == graph


def test_the_model_stays_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout()).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    graph = capture(model, torch.rand(2, 4))
    assert [node.op for node in graph.nodes] == ["linear", "batch_norm"]
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("forward", "name"),
    [
        (torch.digamma, "aten.digamma.default"),
        (lambda x: x + float("inf"), "aten.add.Tensor"),
        (lambda x: x.softmax(0), "aten.softmax.int"),
        (lambda x: x.flatten(0).reshape(-1, 4), "aten.flatten.using_ints"),
        (lambda x: x * x.mean(), "aten.mean.default"),
    ],
)
def test_an_unknown_operation_is_named_when_it_is_run(forward, name: str) -> None:
    model = Model(forward)
    graph = capture(model, torch.zeros(1, 4))
    assert any(each.startswith(name) for each in graph.unknown)
    tensors = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
    with pytest.raises(FormatError, match=name) as error:
        Net(decode(encode(graph)), tensors)
    known = graph.unknown[0].partition(" ")[0] in RULES
    assert str(error.value).endswith(" as it is used here") == known


def test_parts_of_a_parameter_are_named() -> None:
    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = nn.Parameter(torch.randn(2, 4))

        def forward(self, x: Tensor) -> Tensor:
            first, second = self.p.unbind(0)
            return x * first + second

    assert capture(Parts(), torch.zeros(1, 4)).unknown[0] == "aten.unbind.int as it is used here"


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x.add_(x.relu()) * x,
        lambda x: x.mul_(x.sigmoid()) + x,
        lambda x: x.flatten(1).relu_().add_(x.tanh()),
    ],
    ids=["add_", "mul_", "of a view"],
)
def test_sums_and_products_in_place_are_those_of_torch(forward) -> None:
    model = Model(lambda x: forward(x.sigmoid()))
    x = torch.randn(3, 4)
    net = Net(capture(model, x), {k: v.numpy() for k, v in model.state_dict().items()})
    torch.testing.assert_close(torch.from_numpy(net(x.numpy())), model(x).detach())


def overwrite_a_view(x: Tensor) -> Tensor:
    x.view(-1, 2, 2).relu_()
    return x


def overwrite_under_a_view(x: Tensor) -> Tensor:
    view = x.view(-1, 2, 2)
    x.mul_(x.tanh())
    return view.flatten(1)


@pytest.mark.parametrize("forward", [overwrite_a_view, overwrite_under_a_view])
def test_what_is_overwritten_through_a_view_is_refused(forward) -> None:
    with pytest.raises(InputError, match="overwritten in place through a view"):
        capture(Model(forward), torch.zeros(1, 4))


def test_a_value_that_is_overwritten_in_place_is_read_as_overwritten() -> None:
    def forward(x: Tensor) -> Tensor:
        torch.relu_(x)
        return x + x

    graph = capture(Model(forward), torch.zeros(1, 4))
    assert [node.inputs for node in graph.nodes] == [(0,), (1,), (2, 2)]


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (lenet5(), (torch.zeros(1, 1, 28, 28),) * 2, "LeNet5 does not run"),
        (lenet5(), (), "a tuple of one for each input"),
        (lenet5(), torch.zeros(1, 1, 28, 28).bool(), "floating"),
        (lenet5(), torch.zeros(28).long(), "floating"),
        (lenet5(), torch.zeros(1, 3, 28, 28), "LeNet5 does not run"),
        (Model(lambda x: (x, 3)), torch.zeros(1, 4), "result 2 of the network"),
        (Model(lambda x: x if x.sum() > 0 else -x), torch.zeros(1, 4), "cannot trace"),
    ],
)
def test_what_cannot_be_captured_is_said(model: nn.Module, inputs: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        capture(model, inputs)


def test_an_example_of_a_wrong_shape_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"\(1x3 and 8x4\)"):
        capture(nn.Linear(8, 4), torch.zeros(1, 3))
    assert capfd.readouterr().err == ""


def test_what_is_missing_is_named_though_its_batch_may_be_second() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(6, 2, add_bias_kv=True, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x, x, x, need_weights=False)[0]

    assert capture(Attention(), torch.zeros(1, 5, 6)).unknown
