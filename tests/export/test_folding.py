"""Batch norms that became part of the layers before them: the same function with fewer numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.parametrizations import weight_norm

from asterism import fold_norms, runtime, save
from asterism.experiments.networks import resnet8, resnet20
from asterism.export.folding import even_channels_, standardise_norms_

IMAGES = (4, 3, 32, 32)


class Read(nn.Module):
    """A convolution that something else reads beside its batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return F.relu(y) + self.norm(y)


class Twice(nn.Module):
    """One convolution before two batch norms, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)
        self.first, self.second = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        first: Tensor = self.second(self.conv(self.first(self.conv(x))))
        return first


def stack(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


CASES = {
    "resnet8": (resnet8, IMAGES, 0),
    "resnet20": (resnet20, IMAGES, 0),
    "without bias": (lambda: stack(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)), IMAGES, 0),
    "in groups": (lambda: stack(nn.Conv2d(3, 6, 3, groups=3), nn.BatchNorm2d(6)), IMAGES, 0),
    "transposed": (lambda: stack(nn.ConvTranspose2d(3, 4, 2), nn.BatchNorm2d(4)), IMAGES, 0),
    "linear": (lambda: stack(nn.Linear(9, 4), nn.BatchNorm1d(4), nn.ReLU()), (5, 9), 1),
    "not affine": (lambda: stack(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False)), IMAGES, 0),
    "transposed, in groups": (
        lambda: stack(nn.ConvTranspose2d(3, 6, 2, groups=3), nn.BatchNorm2d(6)),
        IMAGES,
        1,
    ),
    "weight norm": (
        lambda: stack(weight_norm(nn.Conv2d(3, 4, 3)), nn.BatchNorm2d(4)),
        IMAGES,
        1,
    ),
    "linear over rows": (lambda: stack(nn.Linear(9, 4), nn.BatchNorm1d(4)), (5, 4, 9), 1),
    "one dimension": (lambda: stack(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4)), (4, 3, 9), 0),
    "first of all": (lambda: stack(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)), IMAGES, 1),
    "after a ReLU": (lambda: stack(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4)), IMAGES, 1),
    "read elsewhere": (Read, IMAGES, 1),
    "used twice": (Twice, IMAGES, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_outputs_stay_and_norms_go_where_they_can(name: str) -> None:
    make, shape, left = CASES[name]
    model = with_statistics(make)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    x = torch.randn(shape)
    folded = fold_norms(model, x)
    assert len(norms(folded)) == left
    torch.testing.assert_close(folded(x), model.eval()(x), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def with_statistics(make: Callable[[], nn.Module]) -> nn.Module:
    """A network whose batch norms have seen something."""
    torch.manual_seed(0)
    model = make()
    for norm in norms(model):
        nn.init.uniform_(norm.running_mean, -1, 1)
        nn.init.uniform_(norm.running_var, 0.5, 2)
        if norm.affine:
            nn.init.uniform_(norm.weight, -1, 1)
            nn.init.uniform_(norm.bias, -1, 1)
    return model


def norms(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


@pytest.mark.parametrize("name", CASES)
def test_even_channels_and_standard_norms_change_no_output(name: str) -> None:
    make, shape, _ = CASES[name]
    model, x = with_statistics(make).eval(), torch.randn(shape)
    before = model(x)
    even_channels_(model, x)
    torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-5)
    standardise_norms_(model)
    torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-5)
    for norm in norms(model):
        assert not norm.affine or (not norm.running_mean.any() and (norm.running_var == 1).all())


def test_channels_are_even_by_their_nonzeros_and_empty_ones_stay_empty() -> None:
    torch.manual_seed(0)
    model = stack(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    with torch.no_grad():
        model[0].weight *= torch.tensor([3.0, 0.1, 1.0, 0.0]).view(4, 1, 1, 1)
        model[0].weight[0, 1:] = 0
    even_channels_(model, torch.randn(IMAGES))
    sizes = [float(each[each != 0].square().mean()) for each in model[0].weight.detach()[:3]]
    assert sizes == pytest.approx([sizes[0]] * 3, rel=1e-4)
    assert not model[0].weight[3].any()
    assert not model[0].weight[0, 1:].any()


def test_a_sparse_network_stays_sparse_and_its_file_gets_smaller(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = resnet8().eval()
    for param in model.parameters():
        if param.ndim > 1:
            param.data *= torch.rand_like(param) < 0.05
    x = torch.randn(IMAGES)
    folded = fold_norms(model, x[:1])
    count = sum(int(p.count_nonzero()) for p in folded.parameters() if p.ndim > 1)
    assert count == sum(int(p.count_nonzero()) for p in model.parameters() if p.ndim > 1)
    sizes = [
        save(each, tmp_path / f"{name}.asterism", example_inputs=x[:1], mode="small")
        for name, each in (("plain", model), ("folded", folded))
    ]
    assert sizes[1] < sizes[0]
    found = runtime.load(tmp_path / "folded.asterism")(x.numpy())
    torch.testing.assert_close(torch.from_numpy(found), model(x), rtol=1e-4, atol=1e-5)
