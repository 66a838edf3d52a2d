"""ResNet-8 on CIFAR-10: re-weighting beside magnitude pruning and RigL, at the same epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asterism.experiments.budgets.budget import Budget
from asterism.experiments.data.augmentation import CROP_AND_FLIP
from asterism.experiments.methods import (
    Dense,
    GradualMagnitude,
    GradualReweighting,
    Method,
    Polish,
    RiggedLottery,
    Then,
)
from asterism.scaling.penalties import Focuss, Penalty, ReweightedL1, ReweightedL2

DENSE_EPOCHS, CUT_EPOCHS, RETRAIN_EPOCHS = 40, 6, 6
LR, WEIGHT_DECAY = 0.05, 2e-4

PENALTIES: dict[str, tuple[Penalty, float]] = {
    "gradual_l1": (ReweightedL1(0.3), 0.05),
    "gradual_l2": (ReweightedL2(1.0), 1.0),
    "gradual_focuss": (Focuss(0.5, 0.3), 0.5),
}
"""Each with its lam."""


def cut_and_retrained(
    density: float, method: type[GradualMagnitude] = GradualMagnitude, **own: Any
) -> Method:
    """A cut, then retraining without a penalty on the compacted network.

    density  the share of all weights that stays
    method   the control, or a kind of it that does more
    own      settings that the method has beyond the control's
    """
    cut = method(
        density,
        cut_epochs=CUT_EPOCHS,
        retrain_epochs=0,
        lr=LR,
        weight_decay=WEIGHT_DECAY,
        augment=CROP_AND_FLIP,
        **own,
    )
    return Then(cut, Polish(retrain_epochs=RETRAIN_EPOCHS, lr=LR, augment=CROP_AND_FLIP))


def gradual(key: str, density: float) -> Method:
    """The control's cut, with a penalty that pulls meanwhile."""
    penalty, lam = PENALTIES[key]
    return cut_and_retrained(density, GradualReweighting, penalty=penalty, lam=lam)


def rigl(density: float) -> Method:
    """From the initial values, with the epochs of the dense network and of the cut together."""
    return RiggedLottery(
        density,
        epochs=DENSE_EPOCHS + CUT_EPOCHS + RETRAIN_EPOCHS,
        weight_decay=WEIGHT_DECAY,
        augment=CROP_AND_FLIP,
    )


def at(density: float, keys: tuple[str, ...]) -> dict[str, Method]:
    """These rows at one density, keys as in "magnitude@5" for 5 %."""
    others: dict[str, Callable[[float], Method]] = {"magnitude": cut_and_retrained, "rigl": rigl}
    return {
        f"{key}@{100 * density:g}": others[key](density) if key in others else gradual(key, density)
        for key in keys
    }


MAIN = ("gradual_l1", "magnitude")
ALL = (*PENALTIES, "magnitude", "rigl")

CIFAR10 = Budget(
    {
        "dense": Dense(
            epochs=DENSE_EPOCHS, lr=0.1, weight_decay=WEIGHT_DECAY, augment=CROP_AND_FLIP
        ),
        **at(0.2, MAIN),
        **at(0.1, MAIN),
        **at(0.05, ALL),
        **at(0.02, ALL),
    },
    batch_size=64,
    model="resnet8",
)
