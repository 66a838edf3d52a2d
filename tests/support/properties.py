"""How many examples a property is tried on, where an example takes long."""

from __future__ import annotations

from hypothesis import settings

NIGHTLY = "nightly"
FEWER, FEWEST = 4, 10


def is_nightly() -> bool:
    return settings.get_current_profile_name() == NIGHTLY


def examples(count: int) -> settings:
    """`count` examples in `make nightly`; in `make test` the first quarter of them, ten or more."""
    return settings(max_examples=count if is_nightly() else max(count // FEWER, FEWEST))
