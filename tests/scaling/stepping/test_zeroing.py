"""Zeros and lists of places: compiled and by torch the same."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.scaling.stepping.zeroing import keep_, list_kept

both_ways = pytest.mark.parametrize("kernels", ["", "none"], ids=["compiled", "by torch"])


@both_ways
@settings(max_examples=40)
@given(seed=st.integers(0, 999), size=st.integers(0, 300), share=st.floats(0, 1))
def test_keeps_and_lists(kernels: str, seed: int, size: int, share: float) -> None:
    noise = torch.Generator().manual_seed(seed)
    values = torch.randn(size, generator=noise)
    values[::7] = torch.nan
    values[1::7] = -0.0
    kept = torch.rand(size, generator=noise) < share
    double, before = values.double(), values.clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASTERISM_KERNELS", kernels)
        keep_([values, double], kept)
        places = list_kept(kept, int(kept.sum()))
    assert places.tolist() == [place for place in range(size) if kept[place]]
    for each in (values, double.float()):
        assert torch.equal(each.view(torch.int32)[kept], before.view(torch.int32)[kept])
        assert not each.view(torch.int32)[~kept].any()  # +0


@both_ways
def test_whatever_the_order_in_memory(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTERISM_KERNELS", kernels)
    kept = torch.rand(4, 3, 2, 2) < 0.5
    orders = (torch.contiguous_format, torch.channels_last)
    strided = torch.ones(4, 3, 2, 2, 2)[..., 0]  # with gaps in its memory
    for mask in (kept, kept.to(memory_format=torch.channels_last)):
        tensors = [torch.ones(4, 3, 2, 2).to(memory_format=order) for order in orders]
        keep_([*tensors, strided], mask)
        for each in (*tensors, strided):
            assert torch.equal(each != 0, kept)
