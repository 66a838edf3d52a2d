"""The page about the rooms shows the rooms as they are, and walks that go down through them."""

from __future__ import annotations

import re
from itertools import groupby, pairwise

import pytest

from support.paths import ROOT as CHECKOUT
from support.rooms import LEVEL, MODULES, ORDER, ROOT, reach

PAGE = (CHECKOUT / "docs" / "architecture.md").read_text()
WALKS = [
    re.findall(r"^\d+\. `([\w/.]+)`", part, re.MULTILINE)
    for part in re.split(r"^(?=1\. )", PAGE, flags=re.MULTILINE)[1:]
]


def test_the_rooms_are_in_the_order_that_is_enforced() -> None:
    table = re.findall(r"^\| (\d+) \| `(\w+)` \|", PAGE, re.MULTILINE)
    lines = [tuple(name for _, name in rooms) for _, rooms in groupby(table, lambda row: row[0])]
    assert tuple(lines) == ORDER
    assert [int(line) for line, _ in table] == sorted(LEVEL[name] + 1 for _, name in table)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+/[\w.]+\.(?:py|c|h))`", PAGE))))
def test_every_file_on_the_page_exists(path: str) -> None:
    assert (CHECKOUT if path.startswith("tests/") else ROOT).joinpath(path).is_file()


def test_there_are_four_walks_one_of_them_in_three_parts() -> None:
    assert len(WALKS) == 6
    assert all(len(walk) > 3 for walk in WALKS)


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk[0])
def test_a_walk_goes_down_and_never_comes_back(walk: list[str]) -> None:
    rooms = [path.partition("/")[0] for path in walk]
    assert all(LEVEL[below] <= LEVEL[above] for above, below in pairwise(rooms))
    visited = [name for name, _ in groupby(rooms)]
    assert len(visited) == len(set(visited))


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk[0])
def test_each_file_of_a_walk_is_reached_from_those_before(walk: list[str]) -> None:
    names = [
        path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for path in walk
        if path.endswith(".py")
    ]
    for number, name in enumerate(names[1:], start=1):
        assert name in MODULES
        assert any(name in reach(before) for before in names[:number])
