"""Splicing: a latent q behind every weight, as in Dynamic Network Surgery (`eq:T`).

omega is computed from |q|, not from |theta|, and the gradient of theta reaches q as it is, straight
through: a weight that was cut by mistake keeps learning and can return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn
from torch.optim import Optimizer

from asterism.errors import InputError
from asterism.scaling.layer import Layer
from asterism.scaling.penalties import Penalty
from asterism.scaling.reweighting import Reweighting
from asterism.scaling.schedules import AllLayers, Layers


class Splicing(Reweighting):
    """Trains a latent q by the gradients of theta = q ⊙ omega, while `model` holds theta.

        optimizer = Splicing(torch.optim.SGD(model.parameters(), lr=0.05), model,
                             HardThreshold(0.9, 1.1))
        for batch in batches:
            optimizer.reweight()        # cuts below 0.9, splices back above 1.1
            step(model, optimizer, batch)
        optimizer.flatten()             # the surgery ends: from here on the zeros stay
        train(model, optimizer)

    optimizer  the inner one, of torch's or your own, which takes the steps in q
    model      whose parameters it trains; they hold theta
    penalty    whose omega of |q| is what q is multiplied by; one, or a mapping from patterns
    layers     which layers `reweight` renews; all of them by default
    include, exclude  glob patterns over layers; see `asterism.weights.targets`
    """

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        penalty: Penalty | Mapping[str, Penalty],
        *,
        layers: Layers | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
    ) -> None:
        self.layers = layers or AllLayers()
        super().__init__(optimizer, model, penalty, include, exclude)
        for layer in self._layers:
            layer.latent = layer.param.detach().clone()

    def _reweight(self, layer: Layer, t: int) -> None:
        q = layer.latent
        if q is None:
            raise InputError("flatten() has ended the splicing: wrap the optimizer anew")
        omega = layer.penalty.omega(layer.magnitude(q), layer.scale, previous=layer.omega)
        layer.move(omega, q * omega)
