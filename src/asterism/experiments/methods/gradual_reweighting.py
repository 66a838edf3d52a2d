"""Gradual re-weighting: the penalty pulls while the cut falls, in one stage.

Density falls along a cubic from 1, as in gradual magnitude pruning, and meanwhile the network
trains the regularised objective (`eq:re-weighted`) in the plain metric: what the next cut takes has
sunk before, and the rest has learned to do without it. The survivors retrain without a penalty.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import nn

from asterism.experiments.methods.magnitude import GradualMagnitude
from asterism.experiments.methods.method import Setup, gradual_cut, sgd
from asterism.scaling.penalties import Penalty, ReweightedL1
from asterism.scaling.proximal import ProximalReweighting
from asterism.scaling.schedules import cubic


@dataclass(frozen=True)
class GradualReweighting(GradualMagnitude):
    """The control's cut and retraining; while it cuts, a pull rises to `lam`.

    weight_decay  of the inner optimizer
    penalty       of all layers
    lam           weight of the penalty at the end of the cut; it rises in proportion to the steps
    """

    weight_decay: float = 5e-4
    penalty: Penalty = field(default_factory=lambda: ReweightedL1(0.3))
    lam: float = 0.1

    def setup(self, model: nn.Module, seed: int = 0) -> Setup:
        optimizer = ProximalReweighting(
            sgd(model, self.weight_decay), model, self.penalty, lam=0.0, freeze_zeros=True
        )
        fall = cubic(1.0, self.density)
        cutting, retraining = gradual_cut(
            fall,
            self.score,
            epochs=(self.cut_epochs, self.retrain_epochs),
            lr=self.lr,
            begin=ProximalReweighting.reweight,
        )

        def pull_and_cut(optimizer: ProximalReweighting, progress: float) -> None:
            cutting.on_step(optimizer, progress)
            pull_down_to(fall(progress), optimizer, self.lam * progress)

        def release(optimizer: ProximalReweighting) -> None:
            optimizer.lam = 0.0
            retraining.begin(optimizer)

        stages = [replace(cutting, on_step=pull_and_cut), replace(retraining, begin=release)]
        return Setup(optimizer, stages, self.augment)


def pull_down_to(density: float, optimizer: ProximalReweighting, lam: float) -> None:
    """Sets lam, or 0 where no more weights are left than the cut asks for: a pull must not go on.

    density    what the cut asks for
    optimizer  whose weights are pulled
    lam        the weight of the penalty
    """
    weights = optimizer.weights().values()
    left = sum(int(w.count_nonzero()) for w in weights) / sum(w.numel() for w in weights)
    optimizer.lam = lam if left > density else 0.0
