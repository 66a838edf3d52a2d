"""The headline of a run: weights, size and loss of its best network, in one line."""

from __future__ import annotations

from asterism.report.layers import Size
from asterism.report.reading.account import Account, Outcome


def headline(account: Account, size: Size | None) -> str:
    """Weights, size and loss of the network that a reader came for; empty if there is none.

    account  the run
    size     of that network, if it is there
    """
    dense, best = account.dense, account.best
    if dense is None or best is None:
        return ""
    if best is dense:
        return "Nothing sparser held the tolerance"
    parts = [f"{_times(dense.nonzeros / max(best.nonzeros, 1))} fewer weights"]
    if size is not None:
        parts.append(_bytes(size.file_bytes))
    if account.trials:
        return ", ".join([*parts, _lost(account, dense, best)])
    return f"{best.name}: {', '.join([*parts, _errors(dense, best)])}"


def _times(ratio: float) -> str:
    """
    >>> _times(9.34), _times(38.9)
    ('9.3×', '39×')
    """
    return f"{ratio:.1f}×" if ratio < 10 else f"{ratio:,.0f}×"


def _bytes(count: int) -> str:
    """
    >>> _bytes(950), _bytes(5_620), _bytes(48_200), _bytes(3_400_000)
    ('950 bytes', '5.6 kB', '48 kB', '3.4 MB')
    """
    if count < 1000:
        return f"{count} bytes"
    value, unit = (count / 1e3, "kB") if count < 1e6 else (count / 1e6, "MB")
    return f"{value:.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"


def _lost(account: Account, dense: Outcome, best: Outcome) -> str:
    change = (best.score - dense.score) * (1 if account.higher_is_better else -1)
    if not account.in_points:
        return f"metric {best.score:.4g} instead of {dense.score:.4g}"
    if abs(change) < 0.005:
        return "no accuracy lost"
    return f"{abs(change):.2g} points of accuracy {'lost' if change < 0 else 'gained'}"


def _errors(dense: Outcome, best: Outcome) -> str:
    return f"test error {best.score:.2f} % (dense {dense.score:.2f} %)"
