"""What is trained with few values is what a file of as many bits holds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from asterism.errors import InputError
from asterism.export.checkpoints import FLOAT_DTYPES, load_state_dict, save
from asterism.export.codebooks import Codebooks
from asterism.export.few_values import parameters_by_width, round_to_codebook
from asterism.export.value_sharing import quantise_


@given(st.sampled_from(FLOAT_DTYPES), st.integers(1, 12), st.integers(0, 99))
def test_it_is_to_the_bit_what_the_file_holds(
    tmp_path_factory: pytest.TempPathFactory, dtype: torch.dtype, bits: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(9, 7, generator=generator).to(dtype)
    weights[weights.abs() < 0.3] = 0
    path = Path(tmp_path_factory.getbasetemp()) / "few.asterism"
    save({"w": weights}, path, bits=bits)
    assert torch.equal(round_to_codebook(weights, bits), load_state_dict(path)["w"])


@pytest.mark.parametrize("start", ["codebooks", "value_sharing"])
def test_both_ways_start_from_the_same_values_and_refuse_the_same(start: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(20, 10)
    expected = round_to_codebook(model.weight, 2)

    def begin(bits: dict[str, int]) -> None:
        if start == "codebooks":
            Codebooks(torch.optim.SGD(model.parameters(), lr=0.1), model, bits)
        else:
            quantise_(model, bits)

    with pytest.raises(InputError, match="the model has no parameters other"):
        begin({"weight": 2, "other": 3})
    begin({"weight": 2})
    assert torch.equal(model.weight, expected)


def test_one_number_is_for_every_parameter() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1, bias=False))
    widths = {name: width for name, (_, width) in parameters_by_width(model, 4).items()}
    assert widths == {"0.weight": 4, "0.bias": 4, "1.weight": 4}
