"""AST: the paper's own method, Algorithm 1 and then a cut.

t = 1 … T:   omega from theta (`reweight`), then train q in f(q ⊙ omega)
the cut:     "layerwise", the paper's: threshold one layer, retrain the whole network, next
             "global", ours: one density for all layers together, falling while it trains
retraining   in theta-space: a small omega means a small step, and survivors must adapt; in
             q-space if asked, for comparison
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from torch import nn

from asterism.errors import InputError
from asterism.experiments.data.augmentation import Augment
from asterism.experiments.methods.method import (
    Method,
    Setup,
    gradual_cut,
    images,
    sgd,
    sgd_by_layer,
)
from asterism.experiments.results import History
from asterism.experiments.training import Stage
from asterism.pruning.scores import count, lamp
from asterism.pruning.selection import Candidates, select
from asterism.scaling.affine_scaling import AffineScaling
from asterism.scaling.initialisers import Greedy, Initialiser
from asterism.scaling.penalties import Penalty, ReweightedL1
from asterism.scaling.proximal import ProximalReweighting
from asterism.scaling.reweighting import Reweighting
from asterism.scaling.schedules import (
    Anneal,
    ConstantTau,
    InTurn,
    Layers,
    geometric,
    share,
    warmup_cosine,
)
from asterism.weights.names import lookup
from asterism.weights.targets import choose


@dataclass(frozen=True)
class AffineScalingTransformation(Method):
    """`density` is the share of all weights that stays, or shares by pattern (layerwise only).
    With `nonzeros` it is that many, whatever the size of the network.

    lam > 0 trains the regularised objective (`eq:re-weighted`) in the plain metric, with psi
    renewed at each step and lam rising geometrically from a fiftieth of its value. The global cut
    goes to `cut_from` at once, and falls geometrically to `density` over `cut_epochs`.

    With `rates` "level", a layer's learning rate is divided by the mean of omega², each counted by
    its theta²: whatever the scale of omega, large weights take steps as in the plain metric.

    `epoch_share` is the share of the images that each epoch of re-weighting takes.
    """

    penalty: Penalty = field(default_factory=ReweightedL1)
    initialiser: Initialiser = field(default_factory=Greedy)
    layers: Layers = field(default_factory=InTurn)
    anneal: Anneal = field(default_factory=ConstantTau)
    normalise: bool = True
    rates: Literal["same", "level"] = "same"
    lam: float = 0.0
    reweights: int = 8
    epochs_per_reweight: int = 1
    tolerance: float | None = None
    density: float | Mapping[str, float] = 0.0128
    nonzeros: int | None = None
    cut_by: Literal["global", "layerwise", "none"] = "global"
    cut_from: float = 1.0
    cut_epochs: int = 4
    retrain_epochs: int = 6
    retrain_in: Literal["theta", "q"] = "theta"
    score: str = "lamp"
    lr: float = 0.05
    weight_decay: float = 0.0
    augment: Augment | None = None
    epoch_share: float = 1.0

    def __post_init__(self) -> None:
        if self.retrain_in not in ("theta", "q"):
            raise InputError(f"retrain_in must be 'theta' or 'q', not {self.retrain_in!r}")
        if self.rates not in ("same", "level"):
            raise InputError(f"rates must be 'same' or 'level', not {self.rates!r}")
        if self.lam > 0 and self.rates == "level":
            raise InputError("lam > 0 trains in the plain metric: its rates are level already")
        if self.lam > 0 and (self.initialiser != Greedy() or not self.normalise):
            raise InputError(
                "lam > 0 trains in the plain metric: no initialiser, no omega to scale"
            )

    @property
    def cut(self) -> str:
        gradual = "gradual, " if self.cut_epochs else ""
        shares = "given" if isinstance(self.density, Mapping) else "LAMP"
        cuts = {
            "global": f"{gradual}global {self.score}",
            "layerwise": f"layer by layer, {shares} shares",
        }
        return cuts.get(self.cut_by, "none") + images(self.augment)

    def setup(self, model: nn.Module, seed: int = 0) -> Setup:
        if self.nonzeros is not None:
            entries = sum(target.param.numel() for target in choose(model))
            density = self.nonzeros / entries
            return replace(self, nonzeros=None, density=density).setup(model, seed)
        stages = [*self._reweighting(), *self._cut(model)]
        return Setup(self._optimizer(model, seed), stages, self.augment)

    def _optimizer(self, model: nn.Module, seed: int) -> Reweighting:
        """The paper's Algorithm 1, or with lam > 0 the regularised objective."""
        inner = (sgd if self.rates == "same" else sgd_by_layer)(model, self.weight_decay)
        if self.lam > 0:
            return ProximalReweighting(
                inner,
                model,
                self.penalty,
                lam=0.0,  # which the stages raise
                layers=self.layers,
                anneal=self.anneal,
                freeze_zeros=True,
            )
        return AffineScaling(
            inner,
            model,
            self.penalty,
            initialiser=self.initialiser,
            layers=self.layers,
            anneal=self.anneal,
            normalise=self.normalise,
            freeze_zeros=True,
            seed=seed,
        )

    # ------------------------------------------------------------------ Algorithm 1

    def _reweighting(self) -> list[Stage]:
        return [self._reweight_and_train(t) for t in range(1, self.reweights + 1)]

    def _reweight_and_train(self, t: int) -> Stage:
        """Iteration t. With lam > 0 it rises, and the learning rate falls, over all iterations."""
        stage = Stage(
            f"reweight {t}",
            self.epochs_per_reweight,
            warmup_cosine(self.lr),
            begin=self._reweight,
            skip=self._converged,
            share=self.epoch_share,
        )
        if self.lam == 0:
            return stage
        lr = share(warmup_cosine(self.lr, final=self.lr / 2), t - 1, self.reweights)
        lam = share(geometric(self.lam / 50, self.lam), t - 1, self.reweights)

        def set_lam(optimizer: Reweighting, progress: float) -> None:
            optimizer.lam = lam(progress)

        return replace(stage, lr=lr, on_step=set_lam)

    def _reweight(self, optimizer: Reweighting) -> None:
        optimizer.reweight()
        self._level(optimizer)

    def _level(self, optimizer: Reweighting) -> None:
        """rate = ‖theta‖² / ‖theta ⊙ omega‖², layer by layer."""
        if self.rates == "same" or not isinstance(optimizer, AffineScaling):
            return
        omega, weights = optimizer.omega(), optimizer.weights()
        for group in optimizer.param_groups:
            if (name := group["name"]) in omega:
                theta = weights[name].detach()
                group["rate"] = float(theta.norm() / (theta * omega[name]).norm()) ** 2

    def _converged(self, history: History) -> bool:
        """Whether the last re-weighting moved the validation error by less than `tolerance`."""
        errors = {record["t"]: record["validation_error_percent"] for record in history}
        if self.tolerance is None or len(errors) < 2:
            return False
        *_, before, last = errors.values()
        return math.isclose(before, last, rel_tol=0, abs_tol=self.tolerance)

    # ------------------------------------------------------------------ the cut

    def _cut(self, model: nn.Module) -> list[Stage]:
        if self.cut_by == "none":
            return []
        if self.cut_by == "layerwise":
            return self._layerwise_cut(model)
        return self._global_cut()

    def _settle(self, optimizer: Reweighting) -> None:
        """From here on no penalty, and in theta-space no metric either."""
        optimizer.lam = 0.0
        if self.retrain_in == "theta":
            optimizer.flatten()
        self._level(optimizer)

    def _global_cut(self) -> list[Stage]:
        if isinstance(self.density, Mapping):
            raise InputError("a global cut takes one density; shares by layer go with 'layerwise'")
        return gradual_cut(
            geometric(max(self.cut_from, self.density), self.density),
            self.score,
            epochs=(self.cut_epochs, self.retrain_epochs),
            lr=self.lr,
            begin=self._settle,
        )

    def _layerwise_cut(self, model: nn.Module) -> list[Stage]:
        names = [target.name for target in choose(model)]

        def cut_layer(number: int, optimizer: Reweighting) -> None:
            self._settle(optimizer)
            optimizer.prune(density={names[number]: self._share(names[number:], optimizer)})

        stages = [
            Stage(
                f"cut {name}", self.cut_epochs, warmup_cosine(self.lr), partial(cut_layer, number)
            )
            for number, name in enumerate(names)
        ]
        return [*stages, Stage("retrain", self.retrain_epochs, warmup_cosine(self.lr))]

    def _share(self, names: Sequence[str], optimizer: Reweighting) -> float:
        """What the first of the layers still uncut may keep, by LAMP over all of them.

        Layers cut before have taken their part of the budget already.
        """
        if isinstance(self.density, Mapping):
            return lookup(self.density, names[0], "density")
        weights, masks = optimizer.weights(), optimizer.masks()
        budget = count(self.density, sum(weight.numel() for weight in weights.values()))
        spent = sum(int(mask.sum()) for name, mask in masks.items() if name not in names)
        cuts = select([Candidates(weights[name]) for name in names], budget - spent, lamp)
        return cuts[0].count / weights[names[0]].numel()
