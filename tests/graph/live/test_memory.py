"""Memory of a training step: lent again when the last tensor over it is gone, and not before."""

from __future__ import annotations

import gc

from asterism.graph.live.memory import Memory

SHAPE = (4, 16, 8, 8, 16)  # 256 kB


def test_memory_comes_back_when_its_last_view_is_gone() -> None:
    memory = Memory()
    whole = memory.empty(SHAPE)
    place, part = whole.data_ptr(), whole[1:]
    del whole
    assert memory.empty(SHAPE).data_ptr() != place
    del part
    assert memory.empty(SHAPE).data_ptr() == place


def test_tensors_outlive_the_pool() -> None:
    value = Memory().empty(SHAPE)
    gc.collect()
    assert float(value.fill_(2.0).sum()) == 2.0 * value.numel()
