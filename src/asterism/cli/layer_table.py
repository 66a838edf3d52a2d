"""The layers of a network in training as a table that a terminal redraws in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.progress import Progress
from rich.table import Table
from rich.text import Text
from torch import Tensor

from asterism.search.progress.words import percent
from asterism.weights.names import layer

MOST_ROWS = 20
"""A terminal scrolls what is longer, and cannot redraw it."""


class LayerStatus(NamedTuple):
    """What is shown of a layer: how many of its weights are left."""

    name: str
    nonzeros: int
    size: int


def layer_statuses(weights: Mapping[str, Tensor]) -> list[LayerStatus]:
    """The rows of weights as they are now.

    >>> import torch
    >>> layer_statuses({"fc.weight": torch.tensor([[-1.0, 1.0]])})
    [LayerStatus(name='fc', nonzeros=2, size=2)]
    """
    return [
        LayerStatus(layer(name), int(weight.count_nonzero()), weight.numel())
        for name, weight in weights.items()
    ]


def layer_table(rows: Sequence[LayerStatus]) -> Table:
    """A line for each layer, of many the ones with most weights."""
    table = Table(box=None)
    for title in ("layer", "weights left", "of", "share"):
        table.add_column(title, justify="left" if title == "layer" else "right")
    largest = sorted(rows, key=lambda row: -row.nonzeros)[:MOST_ROWS]
    for row in (row for row in rows if row in largest):
        share = percent(row.nonzeros / row.size)
        table.add_row(row.name, f"{row.nonzeros:,}", f"{row.size:,}", share)
    if len(rows) > len(largest):
        table.add_row(f"and {len(rows) - len(largest)} more", "", "", "")
    return table


class Board:
    """The table, renewed when there are new numbers, above the bar."""

    def __init__(self, live: Live, bar: Progress) -> None:
        self.live, self.bar = live, bar

    def show(self, rows: Sequence[LayerStatus], caption: str) -> None:
        self.live.update(Group(layer_table(rows), Text(caption), self.bar))


@contextmanager
def board(bar: Progress, console: Console) -> Iterator[Board]:
    """Draws the bar, and the table above it once there is one, until the end of the block."""
    with Live(bar, console=console, refresh_per_second=4) as live:
        yield Board(live, bar)
