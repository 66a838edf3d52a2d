"""The page's tables as files to download: CSV, inside the page as data: addresses."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Sequence
from typing import Any

from asterism.report.layers import LayerSummary
from asterism.report.reading.account import Account
from asterism.search.pareto import TrialRecord

Row = dict[str, Any]


def points_table(account: Account) -> str:
    """The address of the points of the trade-off, those that lost included."""
    return _address(
        [
            {
                "network": each.name,
                "weights": each.nonzeros,
                "density_percent": each.density_percent,
                "score": each.score,
                "spread": each.spread,
                "seeds": each.seeds,
                "within_tolerance": each.within,
            }
            for each in account.outcomes
        ]
    )


def layers_table(rows: Sequence[LayerSummary]) -> str:
    """The address of a network's layers."""
    return _address(
        [
            {
                "layer": row.name,
                "shape": "x".join(map(str, row.shape)),
                "weights": row.entries,
                "nonzeros": row.nonzeros,
                "density_percent": row.density_percent,
                "live_outputs": row.live[0],
                "live_inputs": row.live[1],
                "kurtosis_before": row.kurtosis_before,
                "kurtosis_after": row.kurtosis,
                "bytes": row.bytes,
                "macs_dense": row.macs and row.macs[0],
                "macs_nonzero": row.macs and row.macs[1],
            }
            for row in rows
        ]
    )


def trials_table(trials: Sequence[TrialRecord]) -> str:
    """The address of a search's trials."""
    rows = [trial.to_json() for trial in trials]
    for row in rows:
        row.pop("losses", None)
    return _address(rows)


def _address(rows: Sequence[Row]) -> str:
    content = io.StringIO()
    if rows:
        writer = csv.DictWriter(content, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return "data:text/csv;base64," + base64.b64encode(content.getvalue().encode()).decode()
