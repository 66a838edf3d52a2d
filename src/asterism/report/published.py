"""What others have published for the same network and data, as facts with their source.

Only what was read in the source itself, but where a source is marked as cited by others; a share or
a ratio is turned into a number of weights.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from asterism.experiments.networks import weight_shapes
from asterism.experiments.paper import TABLE_1

Shapes = dict[str, tuple[int, ...]]


class PublishedPoint(NamedTuple):
    """A sparse network of the literature: weights that are not zero, and test error in per cent."""

    name: str
    nonzeros: int
    test_error_percent: float
    source: str


PAPER = "Fedorov & Rao, Re-Weighted Learning for Sparsifying Deep Neural Networks, Table 1"


def _of_the_paper(name: str, key: str) -> PublishedPoint:
    column = TABLE_1[key]
    assert column.density_percent is not None
    weights = sum(prod(shape) for shape in weight_shapes("lenet5").values())
    kept = round(column.density_percent / 100 * weights)
    return PublishedPoint(name, kept, column.test_error_percent, PAPER)


LENET5 = (
    _of_the_paper("paper, ℓ1", "reweighted_l1"),
    _of_the_paper("paper, ℓ2", "reweighted_l2"),
    _of_the_paper("paper, FOCUSS", "focuss"),
    PublishedPoint(
        "LWC", 34_440, 0.77, "Han et al. 2015, Learning both Weights and Connections (8 % of them)"
    ),
    PublishedPoint(
        "DNS",
        3_993,
        0.91,
        "Guo et al. 2016, Dynamic Network Surgery (weights counted in the authors' model)",
    ),
    PublishedPoint(
        "ADMM", 6_027, 0.8, "Zhang et al. 2018, Systematic DNN Weight Pruning with ADMM (1.4 %)"
    ),
    PublishedPoint("L-OBS", 4_305, 2.1, "Dong et al. 2017, Layer-wise Optimal Brain Surgeon (1 %)"),
    PublishedPoint(
        "SNIP, LC",
        4_305,
        1.1,
        "Lee et al. 2019, SNIP; Carreira-Perpiñán & Idelbayev 2018, Learning-Compression (1 %)",
    ),
    PublishedPoint(
        "soft weight sharing",
        2_153,
        0.97,
        "Ullrich et al. 2017, Soft Weight-Sharing for Neural Network Compression (0.5 %)",
    ),
    PublishedPoint(
        "sparse VD",
        1_538,
        0.75,
        "Molchanov et al. 2017, Variational Dropout Sparsifies Deep Neural Networks (280×)",
    ),
)

LENET300 = (
    PublishedPoint(
        "DNS",
        4_988,
        1.99,
        "Guo et al. 2016, Dynamic Network Surgery (weights counted in the authors' model)",
    ),
    PublishedPoint(
        "sparse VD",
        3_915,
        1.92,
        "Molchanov et al. 2017, Variational Dropout Sparsifies Deep Neural Networks (68×)",
    ),
)

RESNET20 = (
    PublishedPoint(
        "ResNet-20 31 %, distiller",
        83_184,
        8.57,
        "Intel's distiller, its example of network surgery on ResNet-20 (31 %)",
    ),
)

SHRINKBENCH = "Carreira-Perpiñán & Idelbayev 2018, Learning-Compression, in ShrinkBench's table"
DPF = "Lin et al. 2020, Dynamic Model Pruning with Feedback, 300 epochs, as others cite it"

CIFAR10 = (
    *RESNET20,
    PublishedPoint("ResNet-20 10 %, DPF", 26_834, 9.12, DPF),
    PublishedPoint("ResNet-20 5 %, DPF", 13_417, 11.99, DPF),
    PublishedPoint("ResNet-32 10 %, LC", 46_187, 7.88, SHRINKBENCH),
    PublishedPoint("ResNet-32 5 %, LC", 23_094, 9.26, SHRINKBENCH),
    PublishedPoint("ResNet-32 3 %, LC", 13_856, 10.74, SHRINKBENCH),
    PublishedPoint("ResNet-56 5 %, LC", 42_575, 7.51, SHRINKBENCH),
    PublishedPoint("ResNet-56 3 %, LC", 25_545, 8.21, SHRINKBENCH),
)
"""Of residual networks of any size, for a figure of them all."""

KNOWN = {
    ("lenet5", "mnist"): LENET5,
    ("lenet300", "mnist"): LENET300,
    ("resnet20", "cifar10"): RESNET20,
}


def published_for(shapes: Shapes, data: str | None) -> tuple[PublishedPoint, ...]:
    """The points of the same network on the same data; none for any other.

    >>> [point.name for point in published_for(weight_shapes("lenet300"), "mnist")]
    ['DNS', 'sparse VD']
    >>> published_for(weight_shapes("lenet300"), "digits")
    ()
    """
    for (network, its_data), points in KNOWN.items():
        if data == its_data and weight_shapes(network) == shapes:
            return points
    return ()
