"""Cuts in which some layers have a density of their own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from asterism import AffineScaling, InputError, ReweightedL1
from asterism.search.layer_floors import fewest, find_floors, prune_above_floors

SIZES = {"0.weight": 60, "1.weight": 40, "2.weight": 20}
TOTAL = 120


def wrapped() -> AffineScaling:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10), nn.Linear(10, 4), nn.Linear(4, 5))
    return AffineScaling(torch.optim.SGD(model.parameters(), lr=0.1), model, ReweightedL1())


def kept(optimizer: AffineScaling) -> list[int]:
    return [int(mask.sum()) for mask in optimizer.masks().values()]


def test_a_layer_falls_with_the_network_to_its_floor_and_no_further() -> None:
    optimizer, floors = wrapped(), find_floors({"1": 0.5}, SIZES)
    seen = []
    for density in (0.8, 0.6, 0.5, 0.3, 0.2):
        prune_above_floors(optimizer, density, floors)
        assert sum(kept(optimizer)) == round(density * TOTAL), "exact, whatever the floors"
        seen.append(kept(optimizer)[1])
    assert seen == [32, 24, 20, 20, 20]


def test_without_floors_it_is_a_global_cut() -> None:
    ours, plain = wrapped(), wrapped()
    prune_above_floors(ours, 0.3, {})
    plain.prune(density=0.3)
    assert all(torch.equal(ours.masks()[name], mask) for name, mask in plain.masks().items())


def test_what_is_as_sparse_already_stays() -> None:
    optimizer, floors = wrapped(), find_floors({"0": 0.9}, SIZES)
    optimizer.prune(density={"0": 0.1, "*": 0.5})
    before = kept(optimizer)
    prune_above_floors(optimizer, 0.4, floors)
    assert kept(optimizer) == before
    prune_above_floors(optimizer, 0.1, floors)
    assert kept(optimizer)[0] == 6, "sparser than its floor, and left so"
    assert sum(kept(optimizer)) == 12


@given(st.dictionaries(st.sampled_from(["0", "1", "2"]), st.floats(0.01, 1.0)))
def test_the_fewest_weights_can_be_reached(densities: dict[str, float]) -> None:
    optimizer, floors = wrapped(), find_floors(densities, SIZES)
    least = fewest(floors, SIZES)
    prune_above_floors(optimizer, least / TOTAL, floors)
    for name, number in zip(SIZES, kept(optimizer), strict=True):
        assert number >= max(1, int(floors.get(name, 0) * SIZES[name]))


def test_a_density_out_of_range_is_named() -> None:
    with pytest.raises(InputError, match=r"densities must lie in \(0, 1\], got 1.5 for 'fc'"):
        find_floors({"fc": 1.5}, {"fc.weight": 3})
