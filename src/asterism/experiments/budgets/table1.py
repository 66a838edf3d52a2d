"""The paper's Table 1 and Figure 1: smoke, quick, standard, paper."""

from __future__ import annotations

from dataclasses import replace

from asterism.experiments.budgets.budget import GREEDY, NOISE, Budget
from asterism.experiments.budgets.rows import AST, control, rows
from asterism.experiments.data.augmentation import Shift
from asterism.experiments.methods import (
    Dense,
    DynamicNetworkSurgery,
    GradualMagnitude,
    LearningWeightsAndConnections,
    Method,
    Polish,
    Then,
)
from asterism.scaling.initialisers import Noise
from asterism.scaling.penalties import Focuss, Penalty, ReweightedL1, ReweightedL2
from asterism.scaling.schedules import AllLayers, Anneal, ChartrandYin, ConstantTau

LENET5_WEIGHTS = 430_500


PAPER_FACTOR = 500


PAPER_EPOCHS = 1000 // PAPER_FACTOR


PAPER_RATE = 0.02
"""The highest learning rate: at 0.05 re-weighted ℓ1 diverged in the first cut."""


PAPER_SHARES = {
    "reweighted_l1": {"conv1": 0.278, "conv2": 0.06, "fc1": 0.007, "fc2": 0.186},
    "reweighted_l2": {"conv1": 0.504, "conv2": 0.049, "fc1": 0.009, "fc2": 0.047},
    "focuss": {"conv1": 0.676, "conv2": 0.081, "fc1": 0.01, "fc2": 0.15},
}


HALF = 0.0064, 0.0063, 0.0085
THIRD = 0.0043, 0.0042, 0.0057
"""Of the share of weights that the paper leaves in its three rows."""


ALL_LAYERS_LIGHTLY = {"*": 1.0}
"""Surgery on a network that has hardly been trained: the authors' rates would leave nothing."""


def figure_runs(
    reweights: int, greedy_epochs: int = 1, normalise: bool = True, epoch_share: float = 1.0
) -> dict[str, AST]:
    """Figure 1: re-weighted ℓ1 with both initialisers.

    The noise run takes a fifth of the usual learning rate: at the usual one the kurtosis of fc1
    reached 74,000.
    """
    common = AST(
        ReweightedL1(0.1),
        reweights=reweights,
        normalise=normalise,
        cut_by="none",
        epoch_share=epoch_share,
    )
    return {
        NOISE: replace(common, initialiser=Noise(0.05), layers=AllLayers(), lr=0.01),
        GREEDY: replace(common, epochs_per_reweight=greedy_epochs),
    }


def paper_figure() -> dict[str, AST]:
    """Figure 1 by the paper's protocol: its greedy half is how `reweighted_l1` begins."""
    runs = figure_runs(reweights=8, greedy_epochs=PAPER_EPOCHS, normalise=False)
    noise, greedy = (replace(run, rates="level") for run in runs.values())
    return {NOISE: noise, GREEDY: replace(greedy, lr=PAPER_RATE)}


def paper_run(key: str, penalty: Penalty, anneal: Anneal) -> AST:
    """Greedy, one layer per t, twice each, raw omega; then the paper's cut to the paper's shares.

    Each layer has a learning rate of its own, which undoes the scale of its omega: at one rate for
    all, layers that a raw omega had shrunk hardly learnt, and in theta-space others ran away.
    """
    return AST(
        penalty,
        anneal=anneal,
        normalise=False,
        rates="level",
        lr=PAPER_RATE,
        epochs_per_reweight=PAPER_EPOCHS,
        cut_by="layerwise",
        density=PAPER_SHARES[key],
        cut_epochs=PAPER_EPOCHS,
        retrain_epochs=0,
    )


BASELINES: dict[str, Method] = {
    "dns": Then(
        DynamicNetworkSurgery(
            {"conv1": 2.0, "conv2": 3.4, "fc1": 7.5, "fc2": 3.1},
            surgery_epochs=20,
            retrain_epochs=0,
        ),
        Polish(retrain_epochs=60, weight_decay=5e-4),
    ),
    "lwc": Then(
        LearningWeightsAndConnections(
            {"conv1": 0.66, "conv2": 0.12, "fc1": 0.074, "fc2": 0.19},
            rounds=4,
            epochs_per_round=2,
            lr=0.02,
        ),
        Polish(retrain_epochs=16, lr=0.03, weight_decay=5e-4, augment=Shift(1)),
    ),
}
"""DNS's authors' rates leave 1.9 % here, so ours are higher. LWC retrains on shifted images: on
plain ones the validation error stayed above 0.9 %."""


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
        **figure_runs(reweights=2),
    },
    train_images=1024,
)


def short_rows(nonzeros: tuple[int, int, int], epochs: tuple[int, int, int]) -> dict[str, Method]:
    """Rows like those, for minutes: from 5 % of the weights on through the live weights alone.

    nonzeros  of re-weighted ℓ1, re-weighted ℓ2 and FOCUSS
    epochs    re-weighting, cutting, retraining; the control cuts during the first two
    """
    reweighting, cutting, retraining = epochs
    start = 0.05
    whole = rows((start, start, start), (reweighting, 0, 0))
    short: dict[str, Method] = {
        key: Then(
            whole[key],
            Polish(
                count,
                cut_epochs=cutting,
                retrain_epochs=retraining,
                score="lamp",
                weight_decay=5e-4,
            ),
        )
        for key, count in zip(("reweighted_l1", "reweighted_l2", "focuss"), nonzeros, strict=True)
    }
    gradual = control(nonzeros[0] / LENET5_WEIGHTS, reweighting + cutting)
    short["magnitude"] = Then(gradual, Polish(retrain_epochs=retraining, weight_decay=5e-4))
    return short


QUICK = Budget(
    {
        "dense": Dense(epochs=4),
        **short_rows((5381, 5381, 7103), epochs=(2, 1, 5)),
        "dns": Then(
            DynamicNetworkSurgery(surgery_epochs=3, retrain_epochs=0, lr=0.02),
            Polish(retrain_epochs=3, lr=0.02, weight_decay=5e-4),
        ),
        "lwc": LearningWeightsAndConnections(rounds=3, epochs_per_round=1, lr=0.01),
        **figure_runs(reweights=8, epoch_share=0.5),
    }
)


STANDARD = Budget(
    {
        "dense": Dense(epochs=12),
        **rows(HALF, epochs=(10, 2, 12)),
        **{
            f"{key}@{100 * density:g}": rows(THIRD, epochs=(10, 2, 12))[key]
            for key, density in zip(PAPER_SHARES, THIRD, strict=True)
        },
        # AST itself, lam = 0; weight decay, epochs, density and its start as in re-weighted ℓ1.
        "ast_l1": Then(
            AST(
                ReweightedL1(0.1),
                density=0.0064,
                cut_from=0.05,
                cut_epochs=4,
                retrain_epochs=0,
                weight_decay=5e-4,
            ),
            Polish(retrain_epochs=12),
        ),
        **BASELINES,
        **figure_runs(reweights=8),
    }
)


PAPER = Budget(
    {
        "dense": Dense(epochs=12),
        "reweighted_l1": paper_run("reweighted_l1", ReweightedL1(0.1), ConstantTau()),
        "reweighted_l2": paper_run("reweighted_l2", ReweightedL2(1.0), ChartrandYin()),
        # Its omega is steepest: with a tau of 1 the second round over the layers ruins them.
        "focuss": paper_run("focuss", Focuss(0.5, 10.0), ConstantTau()),
        "magnitude": GradualMagnitude(0.0128, cut_epochs=12, retrain_epochs=12),
        **BASELINES,
        **paper_figure(),
    }
)
