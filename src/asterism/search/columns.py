"""Text in columns, for people at a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first and last column to the left, those between, which are numbers, to the right.

    >>> align([["layer", "weights", ""], ["fc", "12", "dense"]])
    ['layer  weights', 'fc          12  dense']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.ljust(width) if place in (0, last) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
