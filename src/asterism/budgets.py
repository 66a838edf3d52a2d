"""The paper's experiments as settings, at four budgets. Data, not code: one entry a table row.

smoke     seconds, on a few images: only shows that everything runs
quick     what `make reproduce` runs, minutes
standard  our numbers
paper     the paper's literal protocol (raw omega, lam = 0, its schedule and its cut), with its
          1000 epochs per re-weighting divided by PAPER_FACTOR
"""

from __future__ import annotations

from dataclasses import dataclass

from asterism.errors import InputError
from asterism.initialisers import Noise
from asterism.methods import (
    AffineScalingTransformation,
    Dense,
    DynamicNetworkSurgery,
    GradualMagnitude,
    LearningWeightsAndConnections,
    Method,
)
from asterism.penalties import Focuss, Penalty, ReweightedL1, ReweightedL2
from asterism.schedules import AllLayers, Anneal, ChartrandYin, ConstantTau

AST = AffineScalingTransformation

PAPER_FACTOR = 200
PAPER_SHARES = {
    "reweighted_l1": {"conv1": 0.278, "conv2": 0.06, "fc1": 0.007, "fc2": 0.186},
    "reweighted_l2": {"conv1": 0.504, "conv2": 0.049, "fc1": 0.009, "fc2": 0.047},
    "focuss": {"conv1": 0.676, "conv2": 0.081, "fc1": 0.01, "fc2": 0.15},
}

ALL_LAYERS_LIGHTLY = {"*": 1.0}
"""Surgery on a network that has hardly been trained: the authors' rates would leave nothing."""

NOISE = "figure1_noise"
"""The run behind the left half of Figure 1: no cut, so no row of the table."""


@dataclass(frozen=True)
class Budget:
    """The methods of one budget by their key, and how much data they see."""

    methods: dict[str, Method]
    train_images: int | None = None
    batch_size: int = 128


def budget(name: str) -> Budget:
    if name not in BUDGETS:
        raise InputError(f"unknown budget {name!r}: choose from {', '.join(BUDGETS)}")
    return BUDGETS[name]


def noise_run(reweights: int) -> AST:
    """All layers re-weighted at each t, one epoch per t. The learning rate is a fifth of the usual.

    At the usual one the largest weights, which omega favours, run away.
    """
    return AST(
        ReweightedL1(0.1),
        initialiser=Noise(0.05),
        layers=AllLayers(),
        reweights=reweights,
        cut_by="none",
        lr=0.01,
    )


def paper_run(key: str, penalty: Penalty, anneal: Anneal) -> AST:
    """Greedy, one layer per t, twice each; raw omega; the paper's cut to the paper's shares."""
    return AST(
        penalty,
        anneal=anneal,
        normalise=False,
        epochs_per_reweight=1000 // PAPER_FACTOR,
        cut_by="layerwise",
        density=PAPER_SHARES[key],
        cut_epochs=1000 // PAPER_FACTOR,
        retrain_epochs=1000 // PAPER_FACTOR,
    )


SMOKE = Budget(
    {
        "dense": Dense(epochs=2),
        "reweighted_l1": AST(ReweightedL1(0.1), reweights=2, cut_epochs=1, retrain_epochs=1),
        "reweighted_l2": AST(
            ReweightedL2(1.0), anneal=ChartrandYin(), reweights=2, cut_epochs=1, retrain_epochs=1
        ),
        "focuss": AST(Focuss(0.5, 0.1), reweights=2, cut_epochs=1, retrain_epochs=1, density=0.017),
        "dns": DynamicNetworkSurgery(ALL_LAYERS_LIGHTLY, surgery_epochs=1, retrain_epochs=1),
        "lwc": LearningWeightsAndConnections(rounds=1, epochs_per_round=1),
        "magnitude": GradualMagnitude(cut_epochs=1, retrain_epochs=1),
        NOISE: noise_run(reweights=2),
    },
    train_images=1024,
)

QUICK = Budget(
    {
        "dense": Dense(epochs=5),
        "reweighted_l1": AST(ReweightedL1(0.1), density=0.0128, cut_epochs=2, retrain_epochs=3),
        "reweighted_l2": AST(
            ReweightedL2(1.0),
            layers=AllLayers(),
            anneal=ChartrandYin(),
            reweights=3,
            density=0.0126,
            cut_epochs=2,
            retrain_epochs=3,
        ),
        "focuss": AST(
            Focuss(0.5, 0.1),
            layers=AllLayers(),
            reweights=3,
            density=0.017,
            cut_epochs=2,
            retrain_epochs=3,
        ),
        "dns": DynamicNetworkSurgery(surgery_epochs=4, retrain_epochs=1, lr=0.02),
        "lwc": LearningWeightsAndConnections(rounds=3, epochs_per_round=1, lr=0.01),
        "magnitude": GradualMagnitude(density=0.0128, cut_epochs=7, retrain_epochs=6),
        NOISE: noise_run(reweights=6),
    }
)

STANDARD = Budget(
    {
        "dense": Dense(epochs=12),
        "reweighted_l1": AST(ReweightedL1(0.1), density=0.0128, cut_epochs=4, retrain_epochs=10),
        "reweighted_l2": AST(
            ReweightedL2(1.0),
            anneal=ChartrandYin(),
            density=0.0126,
            cut_epochs=4,
            retrain_epochs=10,
        ),
        "focuss": AST(Focuss(0.5, 0.1), density=0.017, cut_epochs=4, retrain_epochs=10),
        "dns": DynamicNetworkSurgery(surgery_epochs=14, retrain_epochs=8, lr=0.01),
        "lwc": LearningWeightsAndConnections(rounds=5, epochs_per_round=4),
        "magnitude": GradualMagnitude(density=0.0128, cut_epochs=11, retrain_epochs=11),
        NOISE: noise_run(reweights=8),
    }
)

PAPER = Budget(
    {
        "dense": Dense(epochs=12),
        "reweighted_l1": paper_run("reweighted_l1", ReweightedL1(0.1), ConstantTau()),
        "reweighted_l2": paper_run("reweighted_l2", ReweightedL2(1.0), ChartrandYin()),
        "focuss": paper_run("focuss", Focuss(0.5, 0.1), ConstantTau()),
        NOISE: noise_run(reweights=8),
    }
)

BUDGETS = {"smoke": SMOKE, "quick": QUICK, "standard": STANDARD, "paper": PAPER}
