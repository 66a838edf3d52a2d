"""AffineScaling: the paper's change of variables, as a wrapper around any optimizer.

theta = q ⊙ omega is a change of variables for the *solver*, so it lives in the optimizer. The
model keeps plain parameters that hold theta; each step is taken in q-space:

    before the inner step    param ← param / omega       (theta → q)
                             grad  ← grad ⊙ omega        (the chain rule)
    the inner optimizer      steps, with its whole state in q-space
    after it, always         param ← param ⊙ omega       (q → theta)

which is the same as training q in f(q ⊙ omega) (`eq:AST`). A pruned weight has omega = 0: neither
momentum nor noise can bring it back. Knows no method by name; a method is a recipe over this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism.errors import InputError
from asterism.pruning import masks as pruning
from asterism.scaling import inner_optimizer as inner
from asterism.scaling import state_dict as saving
from asterism.scaling.initialisers import Greedy, Initialiser
from asterism.scaling.interrupts import uninterrupted
from asterism.scaling.layer import Layer, make_layer
from asterism.scaling.optimizer_wrapper import OptimizerWrapper, hooked
from asterism.scaling.penalties import Penalty
from asterism.scaling.q_space import Closure, QSpace, is_in_q_space, mark_in_q_space, of_q
from asterism.scaling.schedules import Anneal, ConstantTau, InTurn, Layers
from asterism.weights.names import check_patterns, matches
from asterism.weights.sharding import any_shard, whole


class AffineScaling(OptimizerWrapper):
    """Trains q in f(q ⊙ omega) with `optimizer`, while `model` holds theta (`eq:AST`).

    Algorithm 1 of the paper, in the user's own loop:

        optimizer = AffineScaling(torch.optim.SGD(model.parameters(), lr=0.05), model,
                                  ReweightedL1(tau=0.1))
        for t in range(8):
            optimizer.reweight()        # omega from theta, for the next layer in turn
            train(model, optimizer)     # any training loop
        optimizer.prune(density=0.01)
        train(model, optimizer)

    penalty      one for all layers, or a mapping from patterns to penalties; Group(penalty, by)
                 for weights that live and die together
    initialiser  where q starts after a re-weighting: Greedy(), Noise(sigma), Exact()
    layers       which layers re-weight at iteration t: InTurn(), AllLayers()
    anneal       how tau moves from one re-weighting of a layer to its next
    lam          weight of the penalty itself; a number, or a function of the number of steps
    affine       False: omega only weights the penalty and the metric stays plain
    reweight_every  "round": when `reweight` is called; "step": at each step (affine=False only)
    normalise    scale each omega as the initialiser asks; False is the paper's raw omega
    latent       keep q beside theta and pass gradients straight through (splicing, as in DNS)
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
        lam: float | Callable[[int], float] = 0.0,
        affine: bool = True,
        reweight_every: Literal["round", "step"] = "round",
        normalise: bool = True,
        latent: bool = False,
        on_reweight: Literal["reset", "rescale"] = "reset",
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        freeze_zeros: bool = False,
        seed: int = 0,
    ) -> None:
        _check_choice("reweight_every", reweight_every, ("round", "step"))
        _check_choice("on_reweight", on_reweight, ("reset", "rescale"))
        if reweight_every == "step" and affine:
            raise InputError(
                "reweight_every='step' needs affine=False: the inner optimizer's state cannot"
                " follow a metric that changes at every step"
            )
        if not callable(lam) and not 0 <= lam < math.inf:
            raise InputError(f"lam must be non-negative and finite, got {lam}")
        inner.check_supported(optimizer)
        super().__init__(optimizer)
        self.initialiser = initialiser or Greedy()
        self.layers = layers or InTurn()
        self.anneal = anneal or ConstantTau()
        self.lam = lam
        self.affine, self.reweight_every, self.normalise = affine, reweight_every, normalise
        self.on_reweight, self.seed = on_reweight, seed
        self.iteration = self.steps = 0
        targets = inner.targets(optimizer, model, include, exclude)
        if isinstance(penalty, Mapping):
            check_patterns(penalty, (weight.name for weight, _ in targets))
        self._layers = [
            make_layer(weight, param, penalty, self.anneal, affine, latent)
            for weight, param in targets
        ]
        if freeze_zeros:
            self.prune(masks={layer.name: layer.param != 0 for layer in self._layers})

    # ------------------------------------------------------------------ Algorithm 1

    @torch.no_grad()
    @uninterrupted()
    def reweight(self) -> list[str]:
        """omega^t from theta^(t-1), for the layers whose turn it is; returns their names."""
        t = self.iteration + 1
        names = self.layers.at(t, [layer.name for layer in self._layers])
        for layer in self._layers:
            if layer.name not in names:
                continue
            if not self.affine:
                layer.reweight_penalty(self.anneal)
                continue
            before = self._metric(layer)
            key = f"{self.seed}/{layer.name}/{t}"
            layer.reweight(self.initialiser, self.anneal, self.normalise, key)
            self._follow(layer, before)
        self.iteration = t
        return names

    @hooked
    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """One step of the inner optimizer in q-space, then the proximal step of lam·g."""
        if closure is None and inner.is_rehearsal(self.optimizer):
            return self.optimizer.step()
        if closure is None:
            with uninterrupted():
                return self._step(None)
        return self._step(closure)  # which may take long: theta is safe, and Ctrl-C at once

    def _step(self, closure: Closure | None) -> Any:
        layers = [layer for layer in self._layers if closure or layer.param.grad is not None]
        self._forget_stale(layers)
        q_space = QSpace(layers, elementwise=inner.is_elementwise(self.optimizer))
        try:
            q_space.enter()
            if closure is None:
                loss = self.optimizer.step()
            else:
                loss = self.optimizer.step(lambda: q_space.evaluate(closure))
            if self.affine:
                self._shrink(layers)
            q_space.leave()
        except BaseException:
            q_space.leave(restore=True)
            raise
        if not self.affine:
            self._shrink(layers)
        self.steps += 1
        return loss

    def _shrink(self, layers: Sequence[Layer]) -> None:
        """The proximal step of lam times the current majoriser, at each layer's learning rate."""
        lam = self.lam(self.steps) if callable(self.lam) else self.lam
        if not lam:
            return
        rates = inner.learning_rates(self.optimizer)
        for layer in layers:
            if layer.param.grad is None:
                continue
            if self.reweight_every == "step":
                layer.renew_psi()
            layer.shrink(rates[layer.param] * lam)

    # ------------------------------------------------------------------ the inner state

    def _metric(self, layer: Layer) -> Tensor | None:
        """omega, where the inner optimizer's state is to be rescaled when omega changes."""
        rescalable = layer.latent is None and inner.is_separate(self.optimizer)
        if self.on_reweight == "reset" or not rescalable:
            return None
        inner.check_rescalable(self.optimizer, layer.param)
        return layer.omega.clone()

    def _follow(self, layer: Layer, before: Tensor | None) -> None:
        """After a change of omega. Straight-through gradients do not depend on it."""
        if layer.latent is not None:
            return
        if before is None:
            # Forgotten when next needed, so that a checkpoint has the same keys at all times.
            layer.stale = True
        else:
            inner.rescale(self.optimizer, layer.param, before, layer.omega)

    def _forget_stale(self, layers: Sequence[Layer]) -> None:
        for layer in layers:
            if layer.stale:
                inner.reset(self.optimizer, layer.param)
                layer.stale = False

    # ------------------------------------------------------------------ pruning

    @torch.no_grad()
    @uninterrupted()
    def prune(
        self,
        *,
        density: float | Mapping[str, float] | None = None,
        threshold: float | Mapping[str, float] | None = None,
        masks: Mapping[str, Tensor] | None = None,
        n_to_m: str | Mapping[str, str] | None = None,
        per_layer: bool = False,
        score: str = "lamp",
        at_most: bool = False,
        include: Sequence[str] | None = None,
        pattern: object = None,
    ) -> None:
        """Sets weights to zero, exactly and for good.

        density    the share of the weights made sparse that stays alive, to the weight; a mapping
                   from patterns (or per_layer=True) gives each layer its own. Where the penalty
                   is a Group whole groups go: as many weights stay as fit in the density
        threshold  weights of at most this magnitude go, or groups of at most this RMS; a number or
                   a mapping from patterns
        n_to_m     "2:4": of each 4 neighbours along the input the 2 largest weights stay; any N:M,
                   or a mapping from patterns of names
        masks      by parameter name, true where a weight stays
        score      "lamp" or "magnitude": what a global density compares
        at_most    the density is an upper limit: where no more weights are alive, nothing happens
        include    patterns of the layers that all this is about; the others stay as they are
        pattern    the former name of n_to_m, refused
        """
        if any(layer.latent is not None for layer in self._layers):
            raise InputError("with latent weights the penalty prunes; call flatten() before prune")
        layers = self._matching(include)
        chosen = pruning.choose_masks(
            {layer.name: layer.param.detach() for layer in layers},
            {layer.name: layer.omega for layer in layers if any_shard(layer.pruned, layer.omega)},
            pruning.Request(density, threshold, masks, n_to_m, per_layer, score, at_most, pattern),
            pruning.Layout(
                {layer.name: layer.groups for layer in layers if layer.groups},
                {layer.name: layer.input_dim for layer in layers},
            ),
        )
        for layer in layers:
            if layer.name in chosen:
                layer.prune(chosen[layer.name]())
                inner.forget_pruned(self.optimizer, layer.param, layer.omega)

    def _matching(self, patterns: Sequence[str] | None) -> list[Layer]:
        if patterns is None:
            return self._layers
        check_patterns(patterns, (layer.name for layer in self._layers))
        return [layer for layer in self._layers if matches(layer.name, patterns)]

    @torch.no_grad()
    @uninterrupted()
    def flatten(self) -> None:
        """omega = 1 on all live weights: from here on, retraining in theta-space."""
        for layer in self._layers:
            if not layer.scaled:
                layer.flatten()
                continue
            before = self._metric(layer)
            layer.flatten()
            self._follow(layer, before)

    def masks(self) -> dict[str, Tensor]:
        """By parameter name, true where a weight is alive."""
        return {layer.name: layer.kept for layer in self._layers}

    def weights(self) -> dict[str, Tensor]:
        """The parameters that are made sparse, by name."""
        return {layer.name: layer.param for layer in self._layers}

    @torch.no_grad()
    def apply_masks(self, copy: nn.Module) -> None:
        """Zeroes the pruned weights of another copy of the model, such as a moving average."""
        pruning.apply_masks(copy, self.masks())

    @torch.no_grad()
    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """Clips the norm of the whole gradient as the inner optimizer sees it, in q-space."""
        layers = {layer.param: layer for layer in self._layers if layer.latent is None}
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        used = {param for param in params if is_in_q_space(param.grad)}
        total = nn.utils.get_total_norm(
            [of_q(param.grad, layers[param]) if param in layers else param.grad for param in params]
        )
        nn.utils.clip_grads_with_norm_(params, max_norm, total)
        for param in used:
            mark_in_q_space(param.grad)
        return whole(total)

    # ------------------------------------------------------------------ saving

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's, with omega and what else belongs to a parameter beside it."""
        packed = self.optimizer.state_dict()
        layers = saving.by_key(packed, self.param_groups, self._layers)
        counters = {name: torch.tensor(getattr(self, name)) for name in saving.COUNTERS}
        return saving.join(packed, {key: layer.state() | counters for key, layer in layers.items()})

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The inverse of `state_dict`; what does not fit is refused before anything changes."""
        layers = saving.by_key(state_dict, self.param_groups, self._layers)
        ours, packed = saving.split(state_dict)
        saving.check(layers, ours)
        self.optimizer.load_state_dict(packed)
        for key, layer in layers.items():
            layer.load(ours[key])
            for name in saving.COUNTERS:
                setattr(self, name, int(ours[key][name]))

    def __repr__(self) -> str:
        kept = sum(layer.nonzeros for layer in self._layers)
        total = sum(layer.param.numel() for layer in self._layers)
        return f"AffineScaling({self.optimizer!r}, {kept} of {total} weights, t = {self.iteration})"


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InputError(f"{name} is one of {', '.join(choices)}, got {value!r}")
