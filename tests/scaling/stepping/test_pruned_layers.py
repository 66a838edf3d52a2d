"""The compiled pass over pruned layers equals torch's, bit by bit on live weights."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from asterism import ReweightedL1
from asterism.kernels import library
from asterism.scaling.layer import Layer
from asterism.scaling.stepping.pruned_layers import PrunedLayers

FORMATS = (torch.contiguous_format, torch.channels_last)
needs_kernels = pytest.mark.skipif(library.load() is None, reason="no compiled kernels")


def make(seed: int, density: float, scaled: bool, order: torch.memory_format) -> Layer:
    noise = torch.Generator().manual_seed(seed)
    shape = (3, 2 + seed % 3, 3, 5)
    weight = torch.randn(shape, generator=noise).to(memory_format=order)
    kept = torch.rand(shape, generator=noise) < density
    kept[0, 0, 0, 0] = True
    omega = torch.rand(shape, generator=noise) + 0.1 if scaled else torch.ones(shape)
    layer = Layer("w", nn.Parameter(weight), ReweightedL1(), 1.0, torch.ones_like(weight))
    with torch.no_grad():
        layer.move(omega * kept, weight * kept)
    return layer


def gradient_of(layer: Layer, order: torch.memory_format) -> Tensor:
    noise = torch.Generator().manual_seed(7)
    gradient = torch.randn(layer.param.shape, generator=noise).to(memory_format=order)
    gradient[1, 1] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, -1.0])
    return gradient


@needs_kernels
@given(
    cases=st.lists(
        st.tuples(
            st.integers(0, 99),
            st.sampled_from([0.0, 0.05, 0.12, 0.5, 0.95]),
            st.booleans(),
            st.sampled_from(FORMATS),
            st.sampled_from((None, *FORMATS)),
        ),
        min_size=1,
        max_size=4,
    ),
    zero=st.booleans(),
)
@torch.no_grad()
def test_compiled_and_by_torch_are_the_same(
    cases: list[tuple[int, float, bool, torch.memory_format, torch.memory_format | None]],
    zero: bool,
) -> None:
    layers = [make(*case[:4]) for case in cases if make(*case[:4]).pruned]
    orders = [case[4] for case in cases if make(*case[:4]).pruned]
    results = []
    for compiled in (True, False):
        mine = [copy.deepcopy(layer) for layer in layers]
        gradients = [
            None if order is None else gradient_of(layer, order)
            for layer, order in zip(mine, orders, strict=True)
        ]
        passes = PrunedLayers(mine)
        if not compiled:
            passes.rows = [None] * len(mine)
        passes.to_q(gradients, zero=zero)
        q = [layer.param.clone() for layer in mine]
        for layer in mine:  # an inner step leaves anything where a weight is pruned
            layer.param.add_(0.5).masked_fill_(layer.param.isnan(), 1.0)
        passes.to_theta()
        results.append((mine, gradients, q))
    for one, other, by_torch, by_pass, q, q_by_torch in zip(
        results[0][0], results[1][0], results[1][1], results[0][1], results[0][2], results[1][2],
        strict=True,
    ):  # fmt: skip
        live = one.kept
        assert torch.equal(q[live], q_by_torch[live])
        assert torch.equal(one.param, other.param)
        assert (one.param[~live].view(torch.int32) == 0).all()
        if by_pass is not None and by_torch is not None:
            assert torch.equal(by_pass[live].nan_to_num(3.0), by_torch[live].nan_to_num(3.0))
            if zero:
                assert (by_pass[~live].view(torch.int32) == 0).all()


@needs_kernels
def test_floats_on_the_cpu_take_the_compiled_pass() -> None:
    for order in FORMATS:
        for density in (0.05, 0.5):
            assert PrunedLayers([make(0, density, True, order)]).rows[0] is not None
    double = make(0, 0.5, True, torch.contiguous_format)
    double.omega, double.param.data = double.omega.double(), double.param.data.double()
    assert PrunedLayers([double]).rows == [None]
