"""The proximal step of all layers together equals that of one layer after the other, bit by bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from asterism import Focuss, ReweightedL1, ReweightedL2
from asterism.scaling.layer import Layer
from asterism.scaling.penalties import Penalty
from asterism.scaling.stepping.shrinking import Shrinking, shrink_block

FORMATS = (torch.contiguous_format, torch.channels_last)
PENALTIES = (
    ReweightedL1(0.3),
    ReweightedL1(0.02, relative=False),
    ReweightedL2(0.1),
    ReweightedL2(0.05, relative=False),
    Focuss(),
    Focuss(p=0.0),
    Focuss(p=1.0, relative=False),
    Focuss(p=2.0),
    Focuss(classical=True),
)


def make(seed: int, penalty: Penalty, dtype: torch.dtype, order: Any, of_psi: Any) -> Layer:
    noise = torch.Generator().manual_seed(seed)
    shape = (3, 2 + seed % 3, 3, 5)
    weight = torch.randn(shape, generator=noise).to(dtype).to(memory_format=order)
    weight[0, 0, 0, :2] = torch.tensor([0.0, -0.0])
    psi = torch.rand(shape, generator=noise).to(dtype).to(memory_format=of_psi)
    param = nn.Parameter(weight)
    return Layer("w", param, penalty, 0.37 + seed, torch.ones_like(weight), psi=psi)


def one_by_one(pulled: list[tuple[Layer, float]], by_psi: bool, renew: bool) -> None:
    """As each layer does it alone."""
    for layer, pull in pulled:
        if renew:
            layer.renew_psi()
        layer.shrink(layer.psi * pull if by_psi else pull)


def shrink(pulled: list[tuple[Layer, float]], *, by_psi: bool = False, renew: bool = False) -> None:
    layers = [layer for layer, _ in pulled]
    Shrinking(layers, by_psi=by_psi, renew=renew).step([pull for _, pull in pulled])


def assert_same(found: list[tuple[Layer, float]], expected: list[tuple[Layer, float]]) -> None:
    for (one, _), (other, _) in zip(found, expected, strict=True):
        assert one.psi is not None
        assert other.psi is not None
        assert torch.equal(one.param, other.param)
        assert torch.equal(one.param.signbit(), other.param.signbit())  # of zeros too
        assert torch.equal(one.psi, other.psi)


cases = st.lists(
    st.tuples(
        st.integers(0, 99),
        st.sampled_from(PENALTIES),
        st.sampled_from((torch.float32, torch.float64)),
        st.sampled_from(FORMATS),
        st.sampled_from(FORMATS),
        st.sampled_from((1e-6, 0.01, 0.3, 5.0)),
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("kernels", [None, "none"], ids=["compiled", "by torch"])
@settings(max_examples=40)
@given(cases=cases, form=st.sampled_from([(False, False), (True, False), (True, True)]))
@torch.no_grad()
def test_together_as_one_by_one(kernels: str | None, cases: Any, form: tuple[bool, bool]) -> None:
    by_psi, renew = form
    pulled = [(make(*case), pull) for *case, pull in cases]
    expected = copy.deepcopy(pulled)
    one_by_one(expected, by_psi, renew)
    with pytest.MonkeyPatch.context() as patch:
        if kernels:
            patch.setenv("ASTERISM_KERNELS", kernels)
        shrink(pulled, by_psi=by_psi, renew=renew)
    assert_same(pulled, expected)


@torch.no_grad()
def test_more_weights_than_one_call_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asterism.scaling.stepping.shrinking.AT_ONCE", 100)
    double = [make(n, PENALTIES[n % 2], torch.float64, *FORMATS[:1] * 2) for n in range(7)]
    pulled = [(layer, 0.1) for layer in double]
    expected = copy.deepcopy(pulled)
    one_by_one(expected, by_psi=True, renew=True)
    shrink(pulled, by_psi=True, renew=True)
    assert_same(pulled, expected)


@torch.no_grad()
def test_psi_follows_a_tau_that_moves() -> None:
    """The numbers of psi are kept from step to step, and belong to one tau."""
    layer = make(0, ReweightedL1(0.3), torch.float32, *FORMATS[:1] * 2)
    shrink([(layer, 0.0)], by_psi=True, renew=True)
    layer.tau = 0.05
    shrink([(layer, 0.0)], by_psi=True, renew=True)
    renewed = layer.psi
    layer.renew_psi()
    assert renewed is layer.psi
    expected = 1 / (layer.param.abs() / layer.scale / 0.05 + 1)
    torch.testing.assert_close(layer.psi, expected)


class Capped(ReweightedL1):
    """A psi of its own."""

    def psi(self, z: torch.Tensor, scale: Any = 1.0) -> torch.Tensor:
        return super().psi(z, scale).clamp(max=2.0)


@torch.no_grad()
def test_a_penalty_derived_from_ours_keeps_its_psi() -> None:
    pulled = [(make(0, Capped(0.3), torch.float32, *FORMATS[:1] * 2), 0.1)]
    expected = copy.deepcopy(pulled)
    one_by_one(expected, by_psi=True, renew=True)
    shrink(pulled, by_psi=True, renew=True)
    assert_same(pulled, expected)


@pytest.mark.parametrize("penalty", PENALTIES[:4:2], ids=["order 1", "order 2"])
@torch.no_grad()
def test_a_block_shrinks_as_its_layer(penalty: Penalty) -> None:
    layer = make(0, penalty, torch.float32, *FORMATS[:1] * 2)
    block = layer.param.detach().clone()
    shrink_block(block, penalty.order, 0.1)
    shrink([(layer, 0.1)])
    assert torch.equal(block, layer.param)


@torch.no_grad()
def test_nan_stays_where_it_is() -> None:
    layer = make(0, ReweightedL1(0.3), torch.float32, *FORMATS[:1] * 2)
    layer.param[1] = torch.nan
    shrink([(layer, 0.1)], by_psi=True, renew=True)
    assert layer.param.isnan().sum() == layer.param[1].numel()
