"""The forms that several budgets train: re-weighting as we do it, and the control."""

from __future__ import annotations

from asterism.experiments.methods import AffineScalingTransformation, GradualMagnitude, Method
from asterism.scaling.penalties import Focuss, Penalty, ReweightedL1, ReweightedL2
from asterism.scaling.schedules import AllLayers, ConstantTau, GeometricTau

AST = AffineScalingTransformation


def regularised(penalty: Penalty, lam: float, density: float, epochs: tuple[int, int, int]) -> AST:
    """Our strongest form: lam > 0 and rising, psi renewed at each step, all layers at once.

    Of second order, tau starts at 1 and falls fiftyfold while lam rises as much, so that large
    weights feel the same pull throughout. epochs: re-weighting, cutting, retraining.
    """
    falling = GeometricTau(0.02 ** (1 / epochs[0]))
    return AST(
        penalty,
        layers=AllLayers(),
        lam=lam,
        anneal=falling if penalty.order == 2 else ConstantTau(),
        reweights=epochs[0],
        cut_from=0.05,
        cut_epochs=epochs[1],
        retrain_epochs=epochs[2],
        density=density,
        weight_decay=5e-4,
    )


def rows(densities: tuple[float, float, float], epochs: tuple[int, int, int]) -> dict[str, Method]:
    """The paper's three methods and the control, each with the same epochs."""
    l1, l2, focuss = densities
    half = sum(epochs) // 2
    return {
        "reweighted_l1": regularised(ReweightedL1(0.3), 0.07, l1, epochs),
        "reweighted_l2": regularised(ReweightedL2(1.0), 2.0, l2, epochs),
        "focuss": regularised(Focuss(0.5, 1.0), 1.0, focuss, epochs),
        "magnitude": GradualMagnitude(
            l1, cut_epochs=half, retrain_epochs=sum(epochs) - half, weight_decay=5e-4
        ),
    }


def control(density: float, epochs: int) -> GradualMagnitude:
    """Gradual magnitude pruning without retraining, to compare re-weighting with."""
    return GradualMagnitude(density, cut_epochs=epochs, retrain_epochs=0, weight_decay=5e-4)
