"""The compiled kernels are there: without this, tests that need them would only be skipped."""

from __future__ import annotations

from asterism.kernels import library


def test_the_kernels_are_built() -> None:
    assert library.load() is not None
