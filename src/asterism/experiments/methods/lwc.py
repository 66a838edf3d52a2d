"""LWC: Learning both Weights and Connections (Han et al. 2015).

Threshold each layer at quality × its standard deviation, retrain at a tenth of the learning rate
with weight decay, and iterate. Pruned connections never come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from torch import nn

from asterism.experiments.methods.method import Method, Setup, wrap
from asterism.experiments.training import Stage
from asterism.pruning.scores import quality_threshold
from asterism.scaling.masked import Masked
from asterism.scaling.schedules import warmup_cosine
from asterism.weights.names import lookup


@dataclass(frozen=True)
class LearningWeightsAndConnections(Method):
    """`kept`, by pattern, is the share of each layer that stays at the end: Han's own, for LeNet-5.

    With `quality` instead, thresholds are that many standard deviations.
    """

    kept: Mapping[str, float] = field(
        default_factory=lambda: {"conv1": 0.66, "conv2": 0.12, "fc1": 0.08, "fc2": 0.19}
    )
    quality: Mapping[str, float] | None = None
    rounds: int = 3
    epochs_per_round: int = 2
    lr: float = 0.005
    weight_decay: float = 5e-4

    @property
    def cut(self) -> str:
        return "iterated, per layer"

    def setup(self, model: nn.Module, seed: int = 0) -> Setup:
        stages = [
            Stage(
                f"prune {number}",
                self.epochs_per_round,
                warmup_cosine(self.lr),
                begin=partial(self._prune, number / self.rounds),
            )
            for number in range(1, self.rounds + 1)
        ]
        return Setup(wrap(model, self.weight_decay), stages)

    def _prune(self, share: float, optimizer: Masked) -> None:
        """One round of the way: densities fall geometrically, qualities rise linearly."""
        if self.quality is None:
            targets = {pattern: kept**share for pattern, kept in self.kept.items()}
            optimizer.prune(density=targets)
            return
        thresholds = {
            name: quality_threshold(theta, lookup(self.quality, name, "quality") * share)
            for name, theta in optimizer.weights().items()
        }
        optimizer.prune(threshold=thresholds)
