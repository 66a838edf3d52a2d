"""Which units a weight connects, found by moving one unit and seeing which weights matter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from asterism import Heads, InputError
from asterism.weights.connections import Weight, locate


def weight_of(module: nn.Module, name: str = "weight") -> Weight:
    return locate(nn.ModuleDict({"layer": module}), f"layer.{name}")


def spread(index: Tensor, weight: Weight) -> Tensor:
    return index.expand(weight.shape)


SHAPES: list[tuple[Any, tuple[int, ...]]] = [
    (nn.Linear(4, 6, bias=False), (4,)),
    (nn.Conv1d(4, 6, 3, bias=False), (4, 5)),
    (nn.Conv2d(4, 6, 2, bias=False), (4, 3, 3)),
    (nn.Conv3d(4, 6, 2, bias=False), (4, 2, 2, 3)),
    (nn.Conv2d(4, 6, 2, groups=2, bias=False), (4, 3, 3)),
    (nn.Conv2d(4, 4, 2, groups=4, bias=False), (4, 3, 3)),
    (nn.ConvTranspose1d(4, 6, 2, bias=False), (4, 3)),
    (nn.ConvTranspose2d(4, 6, 2, bias=False), (4, 3, 3)),
    (nn.ConvTranspose3d(4, 6, 2, bias=False), (4, 2, 2, 2)),
    (nn.ConvTranspose2d(4, 6, 2, groups=2, bias=False), (4, 3, 3)),
]


@pytest.mark.parametrize(("module", "shape"), SHAPES, ids=lambda each: str(each))
def test_units_are_those_of_the_layers_own_arithmetic(
    module: nn.Module, shape: tuple[int, ...]
) -> None:
    weight = weight_of(module)
    parameter = module.get_parameter("weight")
    x = torch.rand(1, *shape, requires_grad=True)
    for unit, output in enumerate(module(x)[0]):
        (gradient,) = torch.autograd.grad(output.sum(), parameter, retain_graph=True)
        assert torch.equal(gradient != 0, spread(weight.outputs(), weight) == unit)
    for unit in range(shape[0]):
        lit = torch.zeros(1, *shape)
        lit[0, unit] = 1.0
        (gradient,) = torch.autograd.grad(module(lit).sum(), parameter)
        assert torch.equal(gradient != 0, spread(weight.inputs(), weight) == unit)


@pytest.mark.parametrize(("module", "shape"), SHAPES, ids=lambda each: str(each))
def test_the_input_dimension_is_the_one_that_is_read(
    module: nn.Module, shape: tuple[int, ...]
) -> None:
    weight = weight_of(module)
    groups = getattr(module, "groups", 1)
    per_group = shape[0] if weight.input_dim == 0 else shape[0] // groups
    assert weight.shape[weight.input_dim] == per_group


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_unit_has_a_row_in_every_gate(kind: Any) -> None:
    """A unit whose weights and biases are all zero stays at zero, with its neighbours alive."""
    module = kind(3, 4, batch_first=True)
    for name, parameter in module.named_parameters():
        with torch.no_grad():
            if name.startswith("weight"):
                weight = weight_of(module, name)
                parameter.masked_fill_(spread(weight.outputs(), weight) == 2, 0.0)
            else:
                parameter.zero_()
    output = module(torch.rand(2, 5, 3))[0]
    assert (output[..., 2] == 0).all()
    assert (output[:, -1, [0, 1, 3]] != 0).all()


def test_cells_and_projections_of_recurrent_layers() -> None:
    cell = weight_of(nn.GRUCell(3, 4), "weight_ih")
    assert cell.outputs().flatten().tolist() == [0, 1, 2, 3] * 3
    projected = nn.LSTM(3, 4, proj_size=2)
    assert weight_of(projected, "weight_hr_l0").outputs().flatten().tolist() == [0, 1]
    assert weight_of(projected, "weight_hh_l0").outputs().flatten().tolist() == [0, 1, 2, 3] * 4
    assert weight_of(projected, "weight_ih_l0").rows().flatten().tolist() == list(range(16))


def test_a_dead_head_of_attention_adds_nothing() -> None:
    """Without its weights going in, or without those coming out: the same output."""
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 4, bias=False, batch_first=True).double()
    x = torch.rand(2, 5, 8, dtype=torch.float64)
    outputs = []
    for name in ("in_proj_weight", "out_proj.weight"):
        parameter, kept = module.get_parameter(name), module.get_parameter(name).detach().clone()
        weight = locate(module, name)
        dead = spread(weight.heads(), weight) == 1
        assert int(dead.sum()) * 4 == parameter.numel()
        with torch.no_grad():
            parameter.masked_fill_(dead, 0.0)
            outputs.append(module(x, x, x)[0])
            parameter.copy_(kept)
    torch.testing.assert_close(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], module(x, x, x)[0])


def test_attention_with_keys_of_another_size() -> None:
    module = nn.MultiheadAttention(6, 3, kdim=4, vdim=5)
    for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
        index = locate(module, name).heads()
        assert index.flatten().tolist() == [0, 0, 1, 1, 2, 2]


def test_heads_of_other_projections() -> None:
    assert Heads(2, dim=1)(torch.Size([3, 4])).tolist() == [[0, 0, 1, 1]]
    assert Heads(2, parts=3)(torch.Size([12, 4])).flatten().tolist() == [0, 0, 1, 1] * 3
    with pytest.raises(InputError, match=r"\(6, 4\) does not divide into 1 × 4 heads"):
        Heads(4)(torch.Size([6, 4]))
    with pytest.raises(InputError, match=r"does not divide into 1 × 0 heads"):
        Heads(0)(torch.Size([6, 4]))
    with pytest.raises(InputError, match=r"layer.weight belongs to no .*by=Heads\(count\)"):
        weight_of(nn.Linear(4, 4)).heads()
