"""What others have published for the same network and data, as facts with their source.

Only what was read in the source itself; a ratio is turned into a number of weights.
"""

from __future__ import annotations

from typing import NamedTuple

from asterism.experiments.paper import TABLE_1

Shapes = dict[str, tuple[int, ...]]


class Point(NamedTuple):
    """A sparse network of the literature: weights that are not zero, and test error in per cent."""

    name: str
    nonzeros: int
    test_error_percent: float
    source: str


LENET5_SHAPES: Shapes = {
    "conv1": (20, 1, 5, 5),
    "conv2": (50, 20, 5, 5),
    "fc1": (500, 800),
    "fc2": (10, 500),
}
LENET300_SHAPES: Shapes = {"fc1": (300, 784), "fc2": (100, 300), "fc3": (10, 100)}
LENET5_WEIGHTS, LENET300_WEIGHTS = 430_500, 266_200

PAPER = "Fedorov & Rao, Re-Weighted Learning for Sparsifying Deep Neural Networks, Table 1"


def _of_the_paper(name: str, key: str) -> Point:
    column = TABLE_1[key]
    assert column.density_percent is not None
    kept = round(column.density_percent / 100 * LENET5_WEIGHTS)
    return Point(name, kept, column.test_error_percent, PAPER)


LENET5 = (
    _of_the_paper("paper, ℓ1", "reweighted_l1"),
    _of_the_paper("paper, ℓ2", "reweighted_l2"),
    _of_the_paper("paper, FOCUSS", "focuss"),
    Point(
        "LWC", 34_440, 0.77, "Han et al. 2015, Learning both Weights and Connections (8 % of them)"
    ),
    Point(
        "DNS",
        3_993,
        0.91,
        "Guo et al. 2016, Dynamic Network Surgery (weights counted in the authors' model)",
    ),
    Point("ADMM", 6_027, 0.8, "Zhang et al. 2018, Systematic DNN Weight Pruning with ADMM (1.4 %)"),
    Point("L-OBS", 4_305, 2.1, "Dong et al. 2017, Layer-wise Optimal Brain Surgeon (1 %)"),
    Point(
        "SNIP, LC",
        4_305,
        1.1,
        "Lee et al. 2019, SNIP; Carreira-Perpiñán & Idelbayev 2018, Learning-Compression (1 %)",
    ),
    Point(
        "soft weight sharing",
        2_153,
        0.97,
        "Ullrich et al. 2017, Soft Weight-Sharing for Neural Network Compression (0.5 %)",
    ),
    Point(
        "sparse VD",
        1_538,
        0.75,
        "Molchanov et al. 2017, Variational Dropout Sparsifies Deep Neural Networks (280×)",
    ),
)

LENET300 = (
    Point(
        "DNS",
        4_988,
        1.99,
        "Guo et al. 2016, Dynamic Network Surgery (weights counted in the authors' model)",
    ),
    Point(
        "sparse VD",
        3_915,
        1.92,
        "Molchanov et al. 2017, Variational Dropout Sparsifies Deep Neural Networks (68×)",
    ),
)


def published_for(shapes: Shapes, data: str | None) -> tuple[Point, ...]:
    """The points of the same network on the same data; none for any other.

    >>> [point.name for point in published_for(LENET300_SHAPES, "mnist")]
    ['DNS', 'sparse VD']
    >>> published_for(LENET300_SHAPES, "digits")
    ()
    """
    if data != "mnist":
        return ()
    known = [(LENET5_SHAPES, LENET5), (LENET300_SHAPES, LENET300)]
    return next((points for each, points in known if each == shapes), ())
