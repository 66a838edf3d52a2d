"""The weights of many networks at once, exact and small."""

from __future__ import annotations

import torch

from asterism.storage.packing import pack, unpack


def test_packing_is_exact_and_a_copy_and_small_where_sparse():
    torch.manual_seed(0)
    sparse = torch.randn(30, 40, dtype=torch.float64)
    sparse[torch.rand(30, 40) < 0.9] = 0
    state = {
        "sparse": sparse,
        "dense": torch.randn(3, 3).to(memory_format=torch.contiguous_format),
        "count": torch.tensor(0),
        "empty": torch.zeros(0),
        "extra": {"anything": [1, 2]},
    }
    packed = pack(state)
    assert packed["sparse"]["index"].numel() == sparse.count_nonzero()
    before = sparse.clone()
    sparse.zero_()
    back = unpack(packed)
    assert torch.equal(back["sparse"], before)
    assert back["sparse"].dtype == torch.float64
    for name in ("dense", "count", "empty"):
        assert torch.equal(back[name], state[name])
        assert back[name].dtype == state[name].dtype
    assert back["extra"] == {"anything": [1, 2]}
