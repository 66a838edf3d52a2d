"""Re-weighting against the control and against itself: tradeoff, ablation, forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from asterism.experiments.budgets.budget import Budget
from asterism.experiments.budgets.rows import control, regularised
from asterism.experiments.methods import (
    Dense,
    GradualReweighting,
    Method,
    Polish,
    RiggedLottery,
    Then,
)
from asterism.scaling.initialisers import Noise
from asterism.scaling.penalties import Focuss, ReweightedL1
from asterism.scaling.schedules import InTurn


def tradeoff(lams: Mapping[float, float], epochs: tuple[int, int, int]) -> dict[str, Method]:
    """Re-weighted ℓ1 and the control at each density, keys as in "magnitude@0.5" for 0.5 %.

    `lams` by density: more of it would leave fewer weights than are asked for. Both retrain in a
    phase of their own, on the compacted network. epochs: re-weighting, cutting, retraining; the
    control cuts during the first two.
    """
    reweighting, cutting, retraining = epochs
    retrain = Polish(retrain_epochs=retraining)
    methods: dict[str, Method] = {}
    for density, lam in lams.items():
        ast = regularised(ReweightedL1(0.3), lam, density, (reweighting, cutting, 0))
        methods[f"reweighted_l1@{100 * density:g}"] = Then(ast, retrain)
        gradual = control(density, reweighting + cutting)
        methods[f"magnitude@{100 * density:g}"] = Then(gradual, retrain)
    return methods


TRADEOFF = Budget(
    {
        "dense": Dense(epochs=12),
        **tradeoff({0.1: 0.01, 0.02: 0.03, 0.005: 0.07, 0.002: 0.07}, epochs=(6, 2, 8)),
    }
)


def ablation(density: float, epochs: tuple[int, int, int]) -> dict[str, Method]:
    """One thing changed at a time: of our form, then, below lam = 0, of the paper's.

    epochs: re-weighting, cutting, retraining; every row has as many. Layer by layer the three
    layers' cuts take one each, and re-weighting one less.
    """
    reweighting, cutting, retraining = epochs
    retrain = Polish(retrain_epochs=retraining)
    ours = regularised(ReweightedL1(0.3), 0.07, density, (reweighting, cutting, 0))
    paper = replace(ours, lam=0.0)
    forms = {
        "reweighted_l1": ours,
        "magnitude": control(density, reweighting + cutting),
        "lam=0.02": replace(ours, lam=0.02),
        "lam=0.2": replace(ours, lam=0.2),
        "tau=0.1": replace(ours, penalty=ReweightedL1(0.1)),
        "tau=1": replace(ours, penalty=ReweightedL1(1.0)),
        "score=magnitude": replace(ours, score="magnitude"),
        "cut=layerwise": replace(ours, cut_by="layerwise", reweights=reweighting - 1, cut_epochs=1),
        "lam=0": paper,
        "lam=0+raw-omega": replace(paper, normalise=False),
        "lam=0+noise": replace(paper, initialiser=Noise(0.05)),
        "lam=0+layers-in-turn": replace(paper, layers=InTurn()),
    }
    in_q = replace(paper, retrain_in="q", retrain_epochs=retraining)
    return {**{key: Then(form, retrain) for key, form in forms.items()}, "lam=0+q-space": in_q}


ABLATION = Budget(
    {"dense": Dense(epochs=20), **ablation(0.0138, epochs=(6, 2, 8))},
    model="lenet300",
)


def forms(
    density: float, epochs: tuple[int, int, int], tuned: tuple[int, int, float]
) -> dict[str, Method]:
    """Forms of re-weighting beside magnitude pruning and RigL, at the same epochs.

    density  the share of the weights that stays
    epochs   re-weighting, cutting, retraining; where there is one stage for the first two, it has
             the epochs of both. RigL, which needs no dense network, has those of its training too
    tuned    cutting, retraining and learning rate that are best for the control, and for gradual
             re-weighting as well
    """
    reweighting, cutting, retraining = epochs
    both = reweighting + cutting
    retrain = Polish(retrain_epochs=retraining)
    gradual = GradualReweighting(density=density, cut_epochs=both, retrain_epochs=0)
    phases: dict[str, Method] = {
        "magnitude": control(density, both),
        "reweighted_l1": regularised(ReweightedL1(0.3), 0.07, density, (reweighting, cutting, 0)),
        "gradual_l1": gradual,
        "gradual_l1+lam=0.05": replace(gradual, lam=0.05),
        "gradual_l1+lam=0.2": replace(gradual, lam=0.2),
        "gradual_l1+tau=0.1": replace(gradual, penalty=ReweightedL1(0.1)),
        "gradual_focuss": replace(gradual, penalty=Focuss(0.5, 0.3)),
    }
    cut_epochs, retrain_epochs, lr = tuned
    best = Polish(retrain_epochs=retrain_epochs, lr=lr)
    return {
        **{key: Then(phase, retrain) for key, phase in phases.items()},
        **{
            f"{key}@tuned": Then(replace(cut, cut_epochs=cut_epochs, lr=lr), best)
            for key, cut in (("gradual_l1", gradual), ("magnitude", control(density, both)))
        },
    }


FORMS = Budget(
    {
        "dense": Dense(epochs=20),
        **forms(0.005, epochs=(6, 2, 8), tuned=(10, 6, 0.2)),
        "rigl": RiggedLottery(0.005, epochs=36, lr=0.05),
    },
    model="lenet300",
)
