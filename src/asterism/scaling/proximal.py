"""ProximalReweighting: the re-weighted objective itself (`eq:re-weighted`), in the plain metric.

    f(theta) + lam · Σ psi_j·|theta_j|       (order 1; psi_j·theta_j² for order 2)

with psi the slope of the penalty at the last theta, over its slope at 0. There is no change of
variables: the inner optimizer steps on f in theta, then theta takes the proximal step of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import torch
from torch import nn
from torch.optim import Optimizer

from asterism.scaling.layer import Layer
from asterism.scaling.penalties import Penalty
from asterism.scaling.reweighting import Lam, Reweighting, check_choice, check_lam, pulls
from asterism.scaling.schedules import AllLayers, Anneal, ConstantTau, Layers
from asterism.scaling.stepping.kept import Kept
from asterism.scaling.stepping.shrinking import Shrinking


class ProximalReweighting(Reweighting):
    """Trains f(theta) + lam · the penalty's majoriser: weights sink to zero while they train.

        optimizer = ProximalReweighting(torch.optim.SGD(model.parameters(), lr=0.05), model,
                                        ReweightedL1(tau=0.3), lam=0.005)
        train(model, optimizer)             # any training loop
        optimizer.lam = 0.0
        optimizer.prune(density=0.1)
        train(model, optimizer)

    optimizer       the inner one, of torch's or your own, which takes the steps on f
    model           whose parameters it trains
    penalty         one for all layers, or a mapping from patterns to penalties; Group(penalty, by)
                    for weights that live and die together
    lam             weight of the penalty; a number, or a function of the number of steps
    reweight_every  "step": psi follows theta at each step; "round": when `reweight` is called
    layers          which layers `reweight` renews, and whose tau moves; all of them by default
    anneal          how tau moves from one call of `reweight` to the next
    include, exclude  glob patterns over layers; see `asterism.weights.targets`
    freeze_zeros    zeros already in the model count as pruned
    """

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        penalty: Penalty | Mapping[str, Penalty],
        *,
        lam: Lam,
        reweight_every: Literal["step", "round"] = "step",
        layers: Layers | None = None,
        anneal: Anneal | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        freeze_zeros: bool = False,
    ) -> None:
        check_choice("reweight_every", reweight_every, ("step", "round"))
        self.lam, self.reweight_every = check_lam(lam), reweight_every
        self.layers, self.anneal = layers or AllLayers(), anneal or ConstantTau()
        super().__init__(optimizer, model, penalty, include, exclude, freeze_zeros)
        self._remember_theta(self.anneal)
        renew = reweight_every == "step"
        self._shrinking = Kept(partial(Shrinking, by_psi=True, renew=renew))
        for layer in self._layers:
            layer.psi = torch.ones_like(layer.param, requires_grad=False)

    def _reweight(self, layer: Layer, t: int) -> None:
        layer.anneal(self.anneal)
        layer.renew_psi()

    def _regularise_theta(self, layers: list[Layer]) -> None:
        """The proximal step of lam times the majoriser, at each layer's learning rate."""
        if far := pulls(self.optimizer, layers, self.lam, self.steps):
            self._shrinking.of(layers).step(far)
