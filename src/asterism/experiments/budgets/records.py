"""As few weights as we can: record, and lenet300 for the other network."""

from __future__ import annotations

from dataclasses import replace

from asterism.experiments.budgets.budget import Budget
from asterism.experiments.budgets.rows import control, regularised
from asterism.experiments.budgets.table1 import STANDARD
from asterism.experiments.data.augmentation import Augment, Distort, Shift
from asterism.experiments.methods import Dense, GradualMagnitude, Method, Polish, Then
from asterism.scaling.penalties import ReweightedL1

SHIFT = Shift(1)


def few_weights(
    nonzeros: int,
    lam: float = 0.012,
    epochs: tuple[int, int, int] = (80, 15, 90),
    augment: Augment = SHIFT,
) -> Method:
    """To 3 % at once, then down by the same form, slowly, and retraining: all on changed images.

    That way the weights are chosen for what they will be trained for. Weight decay would only hurt.

    nonzeros  the weights that stay
    lam       of the way down
    epochs    of the way down, cutting, retraining
    augment   changes the images of each batch
    """
    first = regularised(ReweightedL1(0.3), 0.03, 0.03, (6, 2, 0))
    sink = regularised(ReweightedL1(0.3), lam, 1.0, (epochs[0], 0, 0))
    return Then(
        Then(
            replace(first, augment=augment),
            replace(sink, augment=augment, weight_decay=0.0, cut_by="none"),
        ),
        Polish(nonzeros, cut_epochs=epochs[1], retrain_epochs=epochs[2], augment=augment),
    )


def fewer_weights(start: Method, nonzeros: int) -> Method:
    """From a network that is sparse already, by the same form, on shifted images."""
    further = regularised(ReweightedL1(0.3), 0.01, 1.0, (60, 10, 130))
    slow = replace(further, score="magnitude", weight_decay=0.0, augment=SHIFT)
    return Then(start, replace(slow, nonzeros=nonzeros))


def few_by_magnitude(nonzeros: int, augment: Augment = SHIFT) -> Method:
    """The control of `few_weights`: gradual cuts by magnitude in the place of its penalty."""
    first = GradualMagnitude(0.03, cut_epochs=8, retrain_epochs=0, weight_decay=5e-4)
    return Then(
        replace(first, augment=augment),
        Polish(nonzeros, cut_epochs=95, retrain_epochs=90, augment=augment),
    )


RECORD = Budget(
    {
        "dense": Dense(epochs=12),
        "record@2700": few_weights(2700, 0.006, (40, 10, 60)),
        "record@1540": few_weights(1540),
        "record@1239": fewer_weights(STANDARD.methods["reweighted_l1"], 1239),
        "record@1540+distorted": few_weights(1540, augment=Distort()),
        "magnitude@1540": few_by_magnitude(1540),
    }
)


LENET300 = Budget(
    {
        "dense": Dense(epochs=20),
        "reweighted_l1": Then(
            regularised(ReweightedL1(0.3), 0.07, 0.0138, (20, 4, 0)), Polish(retrain_epochs=40)
        ),
        "record@3673": Then(
            replace(regularised(ReweightedL1(0.3), 0.05, 0.0138, (20, 6, 0)), augment=SHIFT),
            Polish(retrain_epochs=60, augment=SHIFT),
        ),
        "magnitude": Then(
            control(0.0138, epochs=24),
            Polish(retrain_epochs=40),
        ),
    },
    model="lenet300",
)
