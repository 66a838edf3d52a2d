"""A compacted network gives the same outputs, is really smaller, and comes back."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from asterism import InputError, save
from asterism.experiments.networks import lenet5, lenet300
from asterism.graph.compaction import compact


class Residual(nn.Module):
    """Batch norms, two additions, padding, a strided shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.conv1, self.conv2 = nn.Conv2d(8, 6, 3, padding=1), nn.Conv2d(6, 8, 3)
        self.middle = nn.BatchNorm2d(6)
        self.shortcut = nn.Conv2d(8, 8, 3)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        y = self.conv2(F.gelu(self.middle(self.conv1(x))))
        return self.head(torch.relu(y + self.shortcut(x)))  # type: ignore[no-any-return]


class Twice(nn.Module):
    """One layer that is called two times, and a view that hides the units."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.loop, self.last = nn.Linear(6, 9), nn.Linear(9, 9), nn.Linear(9, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        x = torch.tanh(self.loop(torch.tanh(self.loop(x))))
        return self.last(x).view(-1, 2, 2)  # type: ignore[no-any-return]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.last = nn.Linear(6, 7), nn.Linear(6, 7), nn.Linear(7, 3)
        self.down.weight = self.up.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.up(x) + self.down(x)))  # type: ignore[no-any-return]


class Strange(nn.Module):
    """Operations that mix units: grouped, padded average, concatenation, a scalar added."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.depthwise = nn.Conv2d(2, 6, 3), nn.Conv2d(6, 6, 3, groups=6)
        self.pool, self.mix = nn.AvgPool2d(2, padding=1), nn.Conv2d(6, 4, 1)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.mix(self.pool(self.depthwise(self.conv(x)))) + 1
        x = x.mean((2, 3))
        return self.last(torch.cat([x, x.sigmoid()], 1))  # type: ignore[no-any-return]


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "LeNet-5": (lenet5, (1, 28, 28)),
    "LeNet-300-100": (lenet300, (1, 28, 28)),
    "residual": (Residual, (3, 8, 8)),
    "twice": (Twice, (6,)),
    "tied": (Tied, (6,)),
    "strange": (Strange, (2, 10, 10)),
}


def sparse(make: Callable[[], nn.Module], density: float, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = make().double().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.running_mean, module.running_var, module.bias.data):
                assert tensor is not None
                tensor.uniform_(0.2, 1.0)
    for param in model.parameters():
        if param.dim() > 1:
            param.data *= torch.rand_like(param) < density
    return model


def random_inputs(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(5, *shape, dtype=torch.float64)


@pytest.mark.parametrize("network", NETWORKS)
@given(
    density=st.sampled_from([0.0, 0.01, 0.05, 0.2, 1.0]),
    seed=st.integers(0, 99),
    in_order=st.booleans(),
)
@settings(max_examples=16, deadline=None)
def test_the_outputs_are_the_same_and_come_back(
    network: str, density: float, seed: int, in_order: bool
) -> None:
    make, shape = NETWORKS[network]
    model = sparse(make, density, seed)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    inputs = random_inputs(shape)
    expected = model(inputs)
    small = compact(model, in_order=in_order)
    torch.testing.assert_close(small.model(inputs), expected)
    again = make().double().eval()
    again.load_state_dict(small.expand())
    torch.testing.assert_close(again(inputs), expected)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("network", ["LeNet-5", "LeNet-300-100", "residual"])
def test_what_is_left_has_no_dead_unit(network: str) -> None:
    make, _ = NETWORKS[network]
    small = compact(sparse(make, 0.02, 0)).model
    sizes = [param.shape for param in small.parameters()]
    assert sum(map(torch.Size.numel, sizes)) < sum(p.numel() for p in make().parameters()) / 2
    again = compact(small).model
    assert [param.shape for param in again.parameters()] == sizes


def test_units_in_order_make_a_smaller_file(tmp_path: Path) -> None:
    """Of n rows the order costs up to log₂ n! bits: here some 400 bytes for the 500 of fc1."""
    model = sparse(lenet5, 0.02, 0).float()
    sizes = {}
    for in_order in (False, True):
        small = compact(model, in_order=in_order).model
        sizes[in_order] = save(small, tmp_path / "net.asterism", mode="small", bits=1)
    rows = len(compact(model).model.fc1.weight)
    bound = math.lgamma(rows + 1) / math.log(2) / 8
    assert bound > 50
    assert 0.7 * bound < sizes[False] - sizes[True] < 1.6 * bound


def test_lenet5_loses_the_units_that_were_killed() -> None:
    model = lenet5()
    with torch.no_grad():
        model.conv1.weight[3:] = 0
        model.conv2.weight[:, 2] = 0  # so that of conv1 two units are left
        model.fc1.weight.view(500, 50, 16)[:, 7:] = 0
        model.fc2.weight[:, 40:] = 0
    small: Any = compact(model).model
    assert small.conv1.weight.shape == (2, 1, 5, 5)
    assert small.conv2.weight.shape == (7, 2, 5, 5)
    assert small.fc1.weight.shape == (40, 112)
    assert small.fc2.weight.shape == (10, 40)
    assert (small.fc1.in_features, small.fc1.out_features) == (112, 40)


def test_training_the_smaller_network_is_training_the_larger_one_with_its_masks() -> None:
    model = sparse(lenet300, 0.02, 1)
    small = compact(model)
    model.load_state_dict(small.expand())
    masks = {name: param != 0 for name, param in model.named_parameters()}
    inputs, labels = random_inputs((1, 28, 28)), torch.arange(5)
    for _ in range(3):
        for network in (model, small.model):
            network.zero_grad()
            F.cross_entropy(network(inputs), labels).backward()
            for name, param in network.named_parameters():
                assert param.grad is not None
                mask = masks[name] if network is model else param != 0
                param.data -= 0.1 * param.grad * (mask if param.dim() > 1 else 1)
    torch.testing.assert_close(small.model(inputs), model(inputs))


def test_the_memory_format_stays() -> None:
    model = sparse(lenet5, 0.2, 0).to(memory_format=torch.channels_last)
    small: Any = compact(model).model
    assert small.conv2.weight.is_contiguous(memory_format=torch.channels_last)


def test_a_model_that_cannot_be_traced_is_refused() -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(InputError, match="Branching cannot be traced"):
        compact(Branching())


def test_a_norm_after_an_unknown_operation_and_a_partial_flatten_stay_whole() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 6, 3),
        nn.Conv2d(6, 6, 3, groups=6),
        nn.BatchNorm2d(6),
        nn.Conv2d(6, 4, 1),
        nn.Flatten(1, 2),
        nn.Linear(6, 6),
    )
    model = model.double().eval()
    with torch.no_grad():
        model[3].weight[:, 1:4] = 0  # type: ignore[union-attr, operator]
    inputs = random_inputs((2, 10, 10))
    torch.testing.assert_close(compact(model).model(inputs), model(inputs))


def test_a_norm_of_flattened_units_stays_whole() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 2))
    model = model.double().eval()
    inputs = random_inputs((1, 4, 4))
    torch.testing.assert_close(compact(model).model(inputs), model(inputs))


@pytest.mark.parametrize("after", [nn.Identity(), nn.MaxPool1d(2), nn.AvgPool1d(2)])
def test_units_of_several_tokens_in_one_row_stay_whole(after: nn.Module) -> None:
    """They are not side by side there, and a pooling takes the largest of several units."""
    torch.manual_seed(0)
    columns = 5 * 6 if isinstance(after, nn.Identity) else 5 * 3
    layers = [nn.Linear(4, 6), nn.ReLU(), after, nn.Dropout(), nn.Flatten(), nn.Linear(columns, 3)]
    model = nn.Sequential(*layers).eval()
    model[0].weight.data[2] = 0
    model[0].bias.data[2] = 0.5
    x = torch.randn(7, 5, 4)
    torch.testing.assert_close(compact(model).model(x), model(x))


def test_layers_without_a_bias_are_compacted_too() -> None:
    torch.manual_seed(0)
    layers = nn.Linear(8, 50, bias=False), nn.ReLU(), nn.Linear(50, 3, bias=False)
    model = nn.Sequential(*layers)
    with torch.no_grad():
        model[2].weight[:, 5:] = 0
    small, x = compact(model).model, torch.randn(4, 8)
    assert small[0].weight.shape == (5, 8)
    torch.testing.assert_close(small(x), model(x))
