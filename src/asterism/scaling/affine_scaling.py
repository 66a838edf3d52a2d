"""AffineScaling: the paper's change of variables, Algorithm 1, around any optimizer.

theta = q ⊙ omega is a change of variables for the *solver*, so it lives in the optimizer. The
model keeps plain parameters that hold theta; each step is taken in q-space:

    before the inner step    param ← param / omega       (theta → q)
                             grad  ← grad ⊙ omega        (the chain rule)
    the inner optimizer      steps, with its whole state in q-space
    after it, always         param ← param ⊙ omega       (q → theta)

which is the same as training q in f(q ⊙ omega) (`eq:AST`). A pruned weight has omega = 0: neither
momentum nor noise can bring it back. Knows no method by name; a method is built over this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism.errors import InputError
from asterism.scaling.initialisers import Greedy, Initialiser
from asterism.scaling.layer import Layer
from asterism.scaling.penalties import Penalty
from asterism.scaling.reweighting import Lam, Reweighting, check_choice, check_lam, pulls
from asterism.scaling.schedules import Anneal, ConstantTau, InTurn, Layers
from asterism.scaling.stepping import inner_optimizer as inner
from asterism.scaling.stepping.blocks import reweight_in_blocks
from asterism.scaling.stepping.kept import Kept
from asterism.scaling.stepping.parts import Regularise
from asterism.scaling.stepping.shrinking import Shrinking, shrink_block
from asterism.weights.noise import standard_normal
from asterism.weights.sharding import extremes, local

# Arguments that this class once had, and where to find what they did.
MOVED = {
    "affine": "ProximalReweighting for the plain metric",
    "reweight_every": "ProximalReweighting for a psi that is renewed at each step",
    "latent": "Splicing for a latent q",
}


class AffineScaling(Reweighting):
    """Trains q in f(q ⊙ omega) with `optimizer`, while `model` holds theta (`eq:AST`).

    Algorithm 1 of the paper, in the user's own loop:

        optimizer = AffineScaling(torch.optim.SGD(model.parameters(), lr=0.05), model,
                                  ReweightedL1(tau=0.1))
        for t in range(8):
            optimizer.reweight()        # omega from theta, for the next layer in turn
            train(model, optimizer)     # any training loop
        optimizer.prune(density=0.1)
        train(model, optimizer)

    optimizer    the inner one, of torch's or your own, which takes the steps in q
    model        whose parameters it trains; they hold theta
    penalty      one for all layers, or a mapping from patterns to penalties; Group(penalty, by)
                 for weights that live and die together
    initialiser  where q starts after a re-weighting: Greedy(), Noise(sigma), Exact()
    layers       which layers re-weight at iteration t: InTurn(), AllLayers()
    anneal       how tau moves from one re-weighting of a layer to its next
    lam          weight of the penalty itself; a number, or a function of the number of steps
    normalise    scale each omega as the initialiser asks; False is the paper's raw omega
    on_reweight  what becomes of the inner optimizer's state then: "reset" or "rescale"
    include, exclude  glob patterns over layers; see `asterism.weights.targets`
    freeze_zeros  zeros already in the model count as pruned
    seed         of the noise initialiser
    """

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        penalty: Penalty | Mapping[str, Penalty],
        *,
        initialiser: Initialiser | None = None,
        layers: Layers | None = None,
        anneal: Anneal | None = None,
        lam: Lam = 0.0,
        normalise: bool = True,
        on_reweight: Literal["reset", "rescale"] = "reset",
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        freeze_zeros: bool = False,
        seed: int = 0,
        **moved: NoReturn,
    ) -> None:
        _refuse(list(moved))
        check_choice("on_reweight", on_reweight, ("reset", "rescale"))
        self.lam = check_lam(lam)
        self.initialiser = initialiser or Greedy()
        self.layers = layers or InTurn()
        self.anneal = anneal or ConstantTau()
        self.normalise, self.on_reweight, self.seed = normalise, on_reweight, seed
        super().__init__(optimizer, model, penalty, include, exclude, freeze_zeros)
        self._remember_theta(self.anneal)
        self._shrinking = Kept(_shrinking_in_q)

    # ------------------------------------------------------------------ Algorithm 1

    def _reweight(self, layer: Layer, t: int) -> None:
        """omega^t from theta^(t-1), and q's start."""
        before = self._metric(layer)
        key = f"{self.seed}/{layer.name}/{t}"
        reweight(layer, self.initialiser, self.anneal, self.normalise, key)
        self._follow(layer, before)

    def _regularise_q(self, layers: list[Layer]) -> None:
        """The proximal step of lam times the majoriser, whose weights are all 1 in q-space."""
        if far := pulls(self.optimizer, layers, self.lam, self.steps):
            self._shrinking.of(layers).step(far)

    def _regularise_block(self, layers: Sequence[Layer]) -> Regularise:
        far = pulls(self.optimizer, layers, self.lam, self.steps)
        if not far:
            return super()._regularise_block(layers)
        _check_plain(layers)
        far_of = dict(zip(layers, far, strict=True))
        return lambda layer, q: shrink_block(q, layer.penalty.order, far_of[layer])

    def _flatten(self, layer: Layer) -> None:
        if not layer.scaled:
            return layer.flatten()
        before = self._metric(layer)
        layer.flatten()
        return self._follow(layer, before)

    def omega(self) -> dict[str, Tensor]:
        """The metric by parameter name: 1 before the first re-weighting, 0 where pruned."""
        return {layer.name: layer.omega for layer in self._layers}

    # ------------------------------------------------------------------ the inner state

    def _metric(self, layer: Layer) -> Tensor | None:
        """omega, where the inner optimizer's state is to be rescaled when omega changes."""
        if self.on_reweight == "reset" or not inner.is_separate(self.optimizer):
            return None
        inner.check_rescalable(self.optimizer, layer.param)
        return layer.omega.clone()

    def _follow(self, layer: Layer, before: Tensor | None) -> None:
        """The inner optimizer's state, after a change of omega."""
        if before is None:
            # Forgotten when next needed, so that a checkpoint has the same keys at all times.
            layer.stale = True
        else:
            inner.rescale(self.optimizer, layer.param, before, layer.omega)


def reweight(
    layer: Layer, initialiser: Initialiser, anneal: Anneal, normalise: bool, key: str
) -> None:
    """omega from the last solution, then q's start, then theta = q ⊙ omega (`eq:theta`).

    layer        which is re-weighted, in place
    initialiser  where its q starts, and how its omega is normalised
    anneal       how its tau moves
    normalise    whether omega is normalised
    key          from which the noise is drawn
    """
    layer.anneal(anneal)
    if type(initialiser) is Greedy and reweight_in_blocks(layer, normalise):
        return
    theta, q = layer.param.detach(), layer.q
    omega = _next_omega(layer, theta)
    if normalise:
        omega.mul_(initialiser.factor(theta, q, omega))
    _check(layer, omega)
    q = initialiser.start(theta, q, omega, lambda: standard_normal(omega, key))
    layer.move(omega, q.mul_(omega))


def _shrinking_in_q(layers: Sequence[Layer]) -> Shrinking:
    _check_plain(layers)
    return Shrinking(layers)


def _check_plain(layers: Sequence[Layer]) -> None:
    """An error where the majoriser is not the plain norm in q-space."""
    for layer in layers:
        if not layer.penalty.plain_in_q:
            raise InputError(f"lam > 0 with {layer.penalty} needs ProximalReweighting")


def _next_omega(layer: Layer, theta: Tensor) -> Tensor:
    """The penalty's omega, and 0 where a weight is pruned."""
    omega = layer.penalty.omega(layer.magnitude(theta), layer.scale, previous=layer.omega)
    if layer.groups is not None:
        return omega * layer.kept  # from one per group to one per weight
    return omega.masked_fill_(layer.omega == 0, 0.0) if layer.pruned else omega


def _check(layer: Layer, omega: Tensor) -> None:
    """Cuts off what theta / omega would overflow at; an error where nothing is left."""
    low, high = extremes(omega)
    tiny = torch.finfo(omega.dtype).tiny
    if low <= tiny:
        torch.threshold_(local(omega), tiny, 0.0)
        low, high = extremes(omega)
    layer.check_alive(omega, high)


def _refuse(names: Sequence[str]) -> None:
    for name in names:
        if name not in MOVED:
            raise TypeError(f"AffineScaling() got an unexpected keyword argument {name!r}")
        raise InputError(f"AffineScaling has no {name!r} any more: use {MOVED[name]}")
