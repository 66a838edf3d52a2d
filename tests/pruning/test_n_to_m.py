"""N:M sparsity: exact counts, in the layout of the hardware."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from asterism import AffineScaling, InputError, ReweightedL1
from asterism.pruning.n_to_m import NToM, parse, select
from support.explicit import assert_exact_zeros, make_model, train, wrap


@given(
    seed=st.integers(0, 2**32),
    keep=st.integers(1, 7),
    more=st.integers(1, 5),
    rows=st.integers(1, 5),
    blocks=st.integers(1, 4),
)
def test_each_block_keeps_its_largest_and_no_more(
    seed: int, keep: int, more: int, rows: int, blocks: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    ratio = NToM(keep, keep + more)
    theta = torch.randint(-3, 4, (rows, blocks * ratio.block), generator=generator).float()
    kept = torch.rand(theta.shape, generator=generator) < 0.8
    mask = select(theta, kept, ratio, dim=1)
    for block, alive, size in zip(
        *(each.view(-1, ratio.block) for each in (mask, kept, theta.abs())), strict=True
    ):
        ranked = sorted(alive.nonzero().flatten().tolist(), key=lambda i: (-float(size[i]), i))
        assert block.nonzero().flatten().tolist() == sorted(ranked[:keep])


def make_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(8, 6, 3),
        nn.ConvTranspose2d(4, 6, 3),
        nn.Conv2d(8, 6, 3, groups=2),
        nn.Linear(8, 5),
        nn.LSTM(4, 3),
    )


def blocks(mask: Tensor, dim: int) -> Tensor:
    return mask.movedim(dim, -1).reshape(-1, 4)


def test_the_blocks_lie_along_the_input() -> None:
    """Channels at each position of a kernel, features of a linear layer."""
    model = make_network()
    optimizer = AffineScaling(
        torch.optim.SGD(model.parameters(), lr=0.1),
        model,
        ReweightedL1(),
        exclude=["*.weight_hh*"],
    )
    optimizer.prune(n_to_m="2:4")
    for name, mask in optimizer.masks().items():
        counts = blocks(mask, 0 if name == "1.weight" else 1).sum(1)
        assert (counts == 2).all(), name
    linear = optimizer.masks()["3.weight"]
    assert (linear.flatten().view(-1, 4).sum(1) == 2).all()
    assert not (blocks(optimizer.masks()["0.weight"], 0).sum(1) == 2).all()


def test_torch_takes_the_result_for_semi_structured() -> None:
    """The rule of torch.sparse: two of four neighbours in a row of the matrix."""
    model = nn.Linear(16, 8)
    wrap(model).prune(n_to_m="2:4")
    assert ((model.weight.detach() != 0).view(8, -1, 4).sum(-1) == 2).all()


def test_it_holds_through_training_and_after_other_cuts() -> None:
    model = make_model()
    optimizer = wrap(model)
    optimizer.reweight()
    train(model, optimizer, range(3))
    optimizer.prune(n_to_m={"fc1": "1:3", "fc2": "3:4"})
    train(model, optimizer, range(3, 8))
    assert_exact_zeros(model, optimizer)
    assert (optimizer.masks()["fc1.weight"].view(-1, 3).sum(1) == 1).all()
    assert (optimizer.masks()["fc2.weight"].view(-1, 4).sum(1) == 3).all()
    optimizer.prune(density=0.2)
    optimizer.prune(n_to_m={"fc2": "2:4"})  # where fewer are left, those stay
    assert (optimizer.masks()["fc2.weight"].view(-1, 4).sum(1) <= 2).all()


def test_layers_that_do_not_fit_are_named() -> None:
    model = make_model()
    before = model.fc2.weight.detach().clone()
    with pytest.raises(
        InputError, match=r"2:4 needs .* divisible by 4, but fc1.weight has 6: name"
    ):
        wrap(model).prune(n_to_m="2:4")
    assert torch.equal(model.fc2.weight, before)
    wrap(model, exclude=["fc1"]).prune(n_to_m="2:4")
    assert (model.fc2.weight != 0).sum() == 12
    assert (model.fc1.weight != 0).all()


@pytest.mark.parametrize("text", ["2-4", "4:2", "0:4", "4:4", "", "a:b", "2:4:8", 24])
def test_what_is_not_n_to_m_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="n_to_m is N:M with 0 < N < M"):
        parse(text)


def test_it_is_the_only_request() -> None:
    with pytest.raises(InputError, match="exactly one of density, threshold, n_to_m and masks"):
        wrap(make_model()).prune(n_to_m="2:4", density=0.5)
