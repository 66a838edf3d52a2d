"""As few weights as we can: record, and lenet300 for the other network."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from asterism.experiments.budgets.budget import Budget
from asterism.experiments.budgets.rows import control, regularised
from asterism.experiments.budgets.table1 import STANDARD
from asterism.experiments.data.augmentation import Distort, Shift
from asterism.experiments.methods import (
    Dense,
    GradualMagnitude,
    Method,
    OnAllImages,
    Polish,
    Regrowth,
    Then,
)
from asterism.scaling.penalties import ReweightedL1

SHIFT, DISTORT = Shift(1), Distort()


def few_weights(nonzeros: int) -> Method:
    """To 3 % at once, then down by the same form, slowly, and retraining: all on shifted images.

    That way the weights are chosen for what they will be trained for. Weight decay would only hurt.
    """
    first = regularised(ReweightedL1(0.3), 0.03, 0.03, (6, 2, 0))
    sink = regularised(ReweightedL1(0.3), 0.012, 1.0, (80, 0, 0))
    return Then(
        Then(
            replace(first, augment=SHIFT),
            replace(sink, augment=SHIFT, weight_decay=0.0, cut_by="none"),
        ),
        Polish(nonzeros, cut_epochs=15, retrain_epochs=90, augment=SHIFT),
    )


def fewer_weights(start: Method, nonzeros: int) -> Method:
    """From a network that is sparse already, by the same form, on shifted images."""
    further = regularised(ReweightedL1(0.3), 0.01, 1.0, (60, 10, 130))
    slow = replace(further, score="magnitude", weight_decay=0.0, augment=SHIFT)
    return Then(start, replace(slow, nonzeros=nonzeros))


def retraining(epochs: int) -> tuple[Method, Method]:
    """Half on distorted images; half on shifted ones, which are as sharp as those it is meant for.

    epochs  of each half
    """
    return (
        Polish(retrain_epochs=epochs, augment=DISTORT),
        Polish(retrain_epochs=epochs, lr=0.02, augment=SHIFT),
    )


def regrown(*nonzeros: int, settled: float = 0.5) -> Method:
    """Down by re-weighting to about 2,800 weights, then by rounds of regrowth, and retraining.

    nonzeros  after each round
    settled   the learning rate at the end of a round, in units of the highest
    """
    first = regularised(ReweightedL1(0.3), 0.03, 0.03, (6, 2, 0))
    sink = regularised(ReweightedL1(0.3), 0.012, 1.0, (40, 0, 0))
    one = Regrowth(epochs=12, lam=0.006, settled=settled, augment=DISTORT)
    rounds = [replace(one, nonzeros=count) for count in nonzeros]
    start: Method = replace(first, augment=DISTORT)
    slow = replace(sink, augment=DISTORT, weight_decay=0.0, cut_by="none")
    return reduce(Then, [start, slow, *rounds, *retraining(30)])


def few_by_magnitude(nonzeros: int, cut_epochs: int) -> Method:
    """The control of `regrown`: gradual cuts by magnitude in the place of its penalty and rounds.

    nonzeros    the weights that stay
    cut_epochs  of the way down from 3 %
    """
    first = GradualMagnitude(0.03, cut_epochs=8, retrain_epochs=0, weight_decay=5e-4)
    start: Method = replace(first, augment=DISTORT)
    cut = Polish(nonzeros, cut_epochs=cut_epochs, retrain_epochs=0, augment=DISTORT)
    return reduce(Then, [start, cut, *retraining(30)])


RECORD = Budget(
    {
        "dense": Dense(epochs=12),
        "record@1540": few_weights(1540),
        "record@1239": fewer_weights(STANDARD.methods["reweighted_l1"], 1239),
        "regrown@2700": regrown(2700, 2700),
        "regrown@1540": regrown(2400, 1900, *[1540] * 6),
        # The same with twice the rounds, each to its end, and validation images trained on.
        "front@1540": OnAllImages(regrown(2400, 1900, *[1540] * 12, settled=0.05)),
        "long@1540": OnAllImages(regrown(2400, 1900, *[1540] * 24, settled=0.05)),
        "magnitude@1540": few_by_magnitude(1540, cut_epochs=136),
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
