"""DNS: Dynamic Network Surgery (Guo et al. 2016), with the settings its authors published.

Every weight keeps a latent q that keeps learning while it is pruned. From time to time omega is
recomputed from |q| (`eq:T`): 0 below a, 1 above b, unchanged between, so that a connection cut by
mistake is spliced back. The gradient reaches q unmasked.

a and b are 0.9 and 1.1 times mu + c·std of the magnitudes in the pretrained layer, its biases
counted in as the authors do; biases themselves are not pruned here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from asterism.experiments.methods.method import Method, Setup, sgd
from asterism.experiments.training import Stage
from asterism.scaling.penalties import HardThreshold, Penalty
from asterism.scaling.schedules import warmup_cosine
from asterism.scaling.splicing import Splicing
from asterism.weights.names import lookup
from asterism.weights.targets import choose


@dataclass(frozen=True)
class DynamicNetworkSurgery(Method):
    """`c_rate` by pattern; the masks change at step t with probability (1 + gamma·t)^-power.

    Surgery ends after `surgery_epochs`; the authors stop after 14,000 batches of 64, 16 epochs.
    """

    c_rate: Mapping[str, float] = field(
        default_factory=lambda: {"conv1": 2.0, "conv2": 3.0, "fc1": 4.0, "fc2": 2.5}
    )
    gamma: float = 1e-4
    power: float = 1.0
    surgery_epochs: int = 8
    retrain_epochs: int = 4
    lr: float = 0.05
    weight_decay: float = 5e-4

    @property
    def cut(self) -> str:
        return "surgery, per layer"

    def setup(self, model: nn.Module, seed: int = 0) -> Setup:
        optimizer = Splicing(sgd(model, self.weight_decay), model, self._penalties(model))
        rng = torch.Generator()

        def surgery(optimizer: Splicing, progress: float) -> None:
            rng.manual_seed(seed * 1_000_003 + optimizer.steps)
            chance = (1 + self.gamma * optimizer.steps) ** -self.power
            if float(torch.rand((), generator=rng)) < chance:
                optimizer.reweight()

        stages = [
            Stage("surgery", self.surgery_epochs, warmup_cosine(self.lr), on_step=surgery),
            Stage("retrain", self.retrain_epochs, warmup_cosine(self.lr), Splicing.flatten),
        ]
        return Setup(optimizer, stages)

    def _penalties(self, model: nn.Module) -> dict[str, Penalty]:
        penalties: dict[str, Penalty] = {}
        for target in choose(model):
            module = model.get_submodule(target.name.rpartition(".")[0])
            params = module.parameters(recurse=False)
            entries = torch.cat([param.detach().abs().flatten() for param in params])
            level = float(
                entries.mean() + lookup(self.c_rate, target.name, "c_rate") * entries.std()
            )
            level = max(level, 0.0)
            penalties[target.name] = HardThreshold(0.9 * level, 1.1 * level, relative=False)
        return penalties
