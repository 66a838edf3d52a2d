"""The numbers the paper prints, as data: Table 1 (`table:results`), LeNet-5 on MNIST."""

from collections.abc import Mapping
from typing import NamedTuple


class Published(NamedTuple):
    """One column of Table 1. The reference prints its error alone."""

    test_error_percent: float
    density_percent: float | None = None
    layers: Mapping[str, float] = {}  # percent of non-zero weights


LAYERS = ("conv1", "conv2", "fc1", "fc2")


def _column(*percents: float, total: float, error: float) -> Published:
    return Published(error, total, dict(zip(LAYERS, percents, strict=True)))


TABLE_1: Mapping[str, Published] = {
    "reference": Published(0.86),
    "reweighted_l1": _column(27.8, 6, 0.7, 18.6, total=1.28, error=1.16),
    "reweighted_l2": _column(50.4, 4.9, 0.9, 4.7, total=1.26, error=1.41),
    "focuss": _column(67.6, 8.1, 1, 15, total=1.7, error=1.13),
    "dns": _column(14.2, 3.1, 0.7, 4.3, total=0.9, error=0.91),
    "lwc": _column(66, 12, 8, 19, total=8, error=0.77),
}
