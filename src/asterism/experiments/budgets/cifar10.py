"""Residual networks on CIFAR-10: re-weighting, magnitude pruning and RigL at the same epochs."""

from __future__ import annotations

from typing import Any, NamedTuple

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

LR, WEIGHT_DECAY = 0.05, 2e-4

PENALTIES: dict[str, tuple[Penalty, float]] = {
    "gradual_l1": (ReweightedL1(0.3), 0.05),
    "slowly_l1": (ReweightedL1(0.3), 0.025),
    "sharper_l1": (ReweightedL1(0.1), 0.05),
    "gradual_l2": (ReweightedL2(1.0), 0.07),
    "gradual_focuss": (Focuss(0.5, 0.1), 0.4),
}
"""Each with its lam."""

SHARPER: dict[float, dict[str, tuple[Penalty, float]]] = {
    0.2: {"gradual_l1": PENALTIES["sharper_l1"]}
}
"""By density, in the place of those above: where many weights stay, a pull on the large ones costs
more, and a smaller tau leaves them alone."""


class Epochs(NamedTuple):
    """Of the dense network, of the cut from there on, and of retraining what is left."""

    dense: int
    cut: int
    retrain: int


def cut_and_retrained(
    density: float, epochs: Epochs, method: type[GradualMagnitude] = GradualMagnitude, **own: Any
) -> Method:
    """A cut, then retraining without a penalty on the compacted network.

    density  the share of all weights that stays
    epochs   of the cut and of retraining
    method   the control, or a kind of it that does more
    own      settings that the method has beyond the control's
    """
    cut = method(
        density,
        cut_epochs=epochs.cut,
        retrain_epochs=0,
        lr=LR,
        weight_decay=WEIGHT_DECAY,
        augment=CROP_AND_FLIP,
        **own,
    )
    return Then(cut, Polish(retrain_epochs=epochs.retrain, lr=LR, augment=CROP_AND_FLIP))


def row(key: str, density: float, epochs: Epochs) -> Method:
    """The control; its cut with a penalty that pulls meanwhile; or RigL, with all epochs."""
    if key == "magnitude":
        return cut_and_retrained(density, epochs)
    if key == "rigl":
        return RiggedLottery(
            density, epochs=sum(epochs), weight_decay=WEIGHT_DECAY, augment=CROP_AND_FLIP
        )
    penalty, lam = SHARPER.get(density, {}).get(key) or PENALTIES[key]
    return cut_and_retrained(density, epochs, GradualReweighting, penalty=penalty, lam=lam)


def budget(
    model: str,
    epochs: Epochs,
    keys: dict[float, tuple[str, ...]],
    others: dict[str, Method] | None = None,
    dense: Method | None = None,
) -> Budget:
    """The dense network, and at each density its rows, keys as in "magnitude@5" for 5 %.

    model   the network's name
    epochs  of all rows but the others
    keys    by density
    others  further rows
    dense   how the dense network is trained, if not in one go
    """
    in_one_go = Dense(epochs=epochs.dense, lr=0.1, weight_decay=WEIGHT_DECAY, augment=CROP_AND_FLIP)
    rows = {
        f"{key}@{100 * density:g}": row(key, density, epochs)
        for density, wanted in keys.items()
        for key in wanted
    }
    return Budget(
        {"dense": dense or in_one_go, **rows, **(others or {})}, batch_size=64, model=model
    )


MAIN = ("gradual_l1", "magnitude")
ALL = ("gradual_l1", "gradual_l2", "gradual_focuss", "magnitude", "rigl")

# The smallest file is made from this: a longer cut with half of the pull, and longer retraining.
SLOWLY = {"slowly_l1@15": row("slowly_l1", 0.15, Epochs(60, 12, 24))}

CIFAR10 = budget("resnet8", Epochs(60, 6, 6), {0.2: MAIN, 0.1: MAIN, 0.05: ALL, 0.02: ALL}, SLOWLY)

# A second, shorter fall of the learning rate after the first.
TWICE = Then(
    Dense(epochs=48, lr=0.1, weight_decay=5e-4, augment=CROP_AND_FLIP),
    Dense(epochs=16, lr=0.05, weight_decay=5e-4, augment=CROP_AND_FLIP),
)
RESNET20 = budget(
    "resnet20", Epochs(64, 8, 8), {0.1: (*MAIN, "sharper_l1"), 0.05: MAIN, 0.02: MAIN}, dense=TWICE
)
