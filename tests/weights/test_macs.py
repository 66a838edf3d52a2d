"""MACs per parameter, against counting by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from asterism import InputError
from asterism.experiments.networks import lenet5
from asterism.weights.macs import macs


def by_name(model: nn.Module, inputs: Any) -> dict[str, int]:
    names = {param: name for name, param in model.named_parameters()}
    return {names[param]: number for param, number in macs(model, inputs).items()}


def test_lenet_has_the_published_numbers() -> None:
    found = by_name(lenet5(), torch.rand(3, 1, 28, 28))
    assert found == {
        "conv1.weight": 288_000,
        "conv2.weight": 1_600_000,
        "fc1.weight": 400_000,
        "fc2.weight": 5_000,
    }
    assert sum(found.values()) == 2_293_000


@given(
    kind=st.sampled_from([nn.Conv1d, nn.Conv2d, nn.Conv3d]),
    groups=st.integers(1, 3),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
)
def test_a_convolution_is_its_products(
    kind: type[nn.Conv2d], groups: int, kernel: int, stride: int, dilation: int
) -> None:
    """With inputs and weights of 1, the sum of the outputs is the number of products."""
    settings: dict[str, Any] = {"dilation": dilation, "groups": groups, "bias": False}
    module = kind(2 * groups, 3 * groups, kernel, stride, **settings)
    nn.init.ones_(module.weight)
    example = torch.ones(1, 2 * groups, *[7] * len(module.kernel_size))
    products = int(module(example).sum())
    assert by_name(module, example.expand(5, *example.shape[1:])) == {"weight": products}


CASES: list[tuple[nn.Module, tuple[int, ...], dict[str, int]]] = [
    (nn.Conv1d(2, 4, 3), (2, 7), {"weight": 5 * 24}),
    (nn.Conv3d(2, 4, 2, groups=2), (2, 3, 3, 3), {"weight": 8 * 32}),
    (nn.ConvTranspose2d(2, 4, 3, stride=2), (2, 5, 5), {"weight": 25 * 72}),
    (nn.Linear(4, 3), (6, 4), {"weight": 6 * 12}),
    (nn.GRUCell(4, 3), (4,), {"weight_ih": 36, "weight_hh": 27}),
    (
        nn.LSTM(4, 3, batch_first=True, bidirectional=True),
        (5, 4),
        {
            "weight_ih_l0": 5 * 48,
            "weight_hh_l0": 5 * 36,
            "weight_ih_l0_reverse": 5 * 48,
            "weight_hh_l0_reverse": 5 * 36,
        },
    ),
]


@pytest.mark.parametrize(("module", "shape", "expected"), CASES, ids=lambda each: str(each)[:30])
@pytest.mark.parametrize("batch", [1, 3])
def test_each_kind_of_layer(
    module: nn.Module, shape: tuple[int, ...], expected: dict[str, int], batch: int
) -> None:
    assert by_name(module, torch.rand(batch, *shape)) == expected


def test_attention_projects_queries_keys_and_values() -> None:
    same = nn.MultiheadAttention(6, 2, batch_first=True)
    x, memory = torch.rand(2, 5, 6), torch.rand(2, 3, 6)
    found = by_name(same, (x, memory, memory))
    assert found == {"in_proj_weight": (5 + 3 + 3) * 36, "out_proj.weight": 5 * 36}
    other = nn.MultiheadAttention(6, 2, kdim=4, vdim=8, batch_first=True)
    inputs = {"query": x, "key": torch.rand(2, 3, 4), "value": torch.rand(2, 3, 8)}
    assert by_name(other, inputs) == {
        "q_proj_weight": 5 * 36,
        "k_proj_weight": 3 * 24,
        "v_proj_weight": 3 * 48,
        "out_proj.weight": 5 * 36,
    }


def test_a_transformer_layer_is_seen_in_eval_mode_too() -> None:
    """Where torch has a fast path that calls none of its parts."""
    layer = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).eval()
    found = by_name(layer, torch.rand(2, 5, 6))
    assert found["self_attn.in_proj_weight"] == 3 * 5 * 36
    assert found["linear1.weight"] == found["linear2.weight"] == 5 * 48


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.twin = nn.Linear(4, 4)
        self.twin.weight = self.first.weight
        self.unused = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        return self.twin(self.first(self.first(x)))


def test_every_use_counts_and_the_model_is_left_as_it_was() -> None:
    model = Twice().train()
    model.twin.eval()
    assert by_name(model, torch.rand(2, 4)) == {"first.weight": 3 * 16}
    assert model.training
    assert not model.twin.training
    assert not any(module._forward_hooks for module in model.modules())


def test_a_forward_that_fails_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.BatchNorm1d(3))
    model[1].eval()
    with pytest.raises(RuntimeError):
        macs(model, torch.ones(2, 4))
    assert not any(module._forward_hooks for module in model.modules())
    assert [module.training for module in model.modules()] == [True, True, False, True]


def test_packed_sequences_count_their_steps() -> None:
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.RNN(4, 3)

        def forward(self, x: Tensor) -> Any:
            return self.rnn(pack_sequence([x[0], x[1, :2]]))[0]

    assert by_name(Packed(), torch.rand(2, 6, 4))["rnn.weight_ih_l0"] == (6 + 2) * 12 // 2


def test_inputs_without_a_batch_are_refused() -> None:
    with pytest.raises(InputError, match="no tensor with a batch dimension"):
        macs(nn.Identity(), (3,))
