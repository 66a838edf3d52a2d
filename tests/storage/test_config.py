import functools
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asterism.scaling.penalties import Concave, Focuss, ReweightedL1
from asterism.scaling.schedules import InTurn
from asterism.storage.config import describe, differences

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@dataclass(frozen=True)
class Settings:
    penalty: Any = field(default_factory=ReweightedL1)
    layers: Any = field(default_factory=InTurn)
    density: Any = 0.1


class Unnamed:
    """An object of no help to a reader: its repr holds an address."""


def double(z: torch.Tensor) -> torch.Tensor:
    return 2 * z


@given(plain)
def test_plain_values_are_their_own_description(value: Any) -> None:
    assert describe(value) == value


def test_settings_nest() -> None:
    settings = Settings(layers=InTurn(("fc1", "conv*")), density={"fc1": 0.5, 3: 1})
    assert describe(settings) == {
        "kind": "Settings",
        "penalty": {"kind": "ReweightedL1", "tau": 0.1, "relative": True},
        "layers": {"kind": "InTurn", "order": ["fc1", "conv*"]},
        "density": {"fc1": 0.5, "3": 1},
    }


def test_functions_and_classes_go_by_their_names() -> None:
    assert describe(Concave(double))["g"].startswith("double ")
    assert describe(Settings) == "Settings"


@pytest.mark.parametrize("make", [Unnamed, lambda: functools.partial(double)])
def test_no_description_holds_an_address(make: Any) -> None:
    assert "0x" not in describe(make())
    assert describe(make()) == describe(make())


@given(plain)
def test_a_description_survives_json(value: Any) -> None:
    described = describe(Settings(density=value))
    assert differences(json.loads(json.dumps(described)), described) == []


def test_differences_are_dotted_paths() -> None:
    one = describe(Settings(ReweightedL1(0.1), density={"fc1": 0.5}))
    other = describe(Settings(Focuss(0.5), InTurn(("fc1",)), density={"fc1": 0.4, "fc2": 1.0}))
    assert differences(one, other) == [
        "penalty.kind",
        "penalty.p",
        "penalty.classical",
        "layers.order",
        "density.fc1",
        "density.fc2",
    ]
    assert set(differences(other, one)) == set(differences(one, other))


@given(plain)
def test_nothing_differs_from_itself(value: Any) -> None:
    assert differences({"x": value}, {"x": value}) == []


@given(st.dictionaries(st.sampled_from("abc"), st.integers(), min_size=1))
def test_every_changed_entry_is_found(entries: dict[str, int]) -> None:
    changed = {key: value + 1 for key, value in entries.items()}
    assert differences(entries, changed) == list(entries)


def test_two_functions_of_one_name_are_told_apart() -> None:
    def scaled(factor: float) -> Any:
        return lambda z: factor * z

    assert describe(scaled(2.0)) == describe(scaled(2.0))
    assert describe(scaled(2.0)) != describe(scaled(3.0))
    assert describe(lambda z: z + 1) != describe(lambda z: z + 2)
