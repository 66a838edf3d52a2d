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

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism import inner, pruning
from asterism.errors import InputError
from asterism.initialisers import Greedy, Initialiser
from asterism.layer import Layer, measure_scale, whole
from asterism.penalties import Penalty
from asterism.qspace import Closure, QSpace
from asterism.schedules import Anneal, ConstantTau, InTurn, Layers
from asterism.targets import choose

PREFIX = "asterism."


class AffineScaling(Optimizer):
    """Trains q in f(q ⊙ omega) with `optimizer`, while `model` holds theta (`eq:AST`).

    Algorithm 1 of the paper, in the user's own loop:

        optimizer = AffineScaling(torch.optim.SGD(model.parameters(), lr=0.05), model,
                                  ReweightedL1(tau=0.1))
        for t in range(8):
            optimizer.reweight()        # omega from theta, for the next layer in turn
            train(model, optimizer)     # any training loop
        optimizer.prune(density=0.01)
        train(model, optimizer)

    penalty      one for all layers, or a mapping from patterns to penalties
    initialiser  where q starts after a re-weighting: Greedy(), Noise(sigma), Exact()
    layers       which layers re-weight at iteration t: InTurn(), AllLayers()
    anneal       how tau moves from one re-weighting of a layer to its next
    lam          weight of the penalty itself; a number, or a function of the number of steps
    affine       False: omega only weights the penalty and the metric stays plain
    reweight_every  "round": when `reweight` is called; "step": at each step (affine=False only)
    normalise    scale each omega as the initialiser asks; False is the paper's raw omega
    latent       keep q beside theta and pass gradients straight through (splicing, as in DNS)
    state        what becomes of the inner state when omega changes: "reset" or "rescale"
    include, exclude  glob patterns over layers; see `asterism.targets`
    freeze_zeros zeros already in the model count as pruned
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
        state: Literal["reset", "rescale"] = "reset",
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        freeze_zeros: bool = False,
        seed: int = 0,
    ) -> None:
        if reweight_every == "step" and affine:
            raise InputError(
                "reweight_every='step' needs affine=False: the inner optimizer's state cannot"
                " follow a metric that changes at every step"
            )
        self.optimizer = optimizer
        self.initialiser = initialiser or Greedy()
        self.layers = layers or InTurn()
        self.anneal = anneal or ConstantTau()
        self.lam = lam
        self.affine, self.reweight_every, self.normalise = affine, reweight_every, normalise
        self.on_reweight, self.seed = state, seed
        self.iteration = self.steps = 0
        # Optimizer's own __init__ would take over the parameter groups, which stay the inner
        # optimizer's; its __setstate__ installs the hooks alone.
        super().__setstate__({})
        self._layers = [
            _make_layer(name, param, penalty, self.anneal, affine, latent)
            for name, param in _targets(optimizer, model, include, exclude)
        ]
        if freeze_zeros:
            self.prune(threshold=0.0)

    # ------------------------------------------------------------------ Algorithm 1

    @torch.no_grad()
    def reweight(self) -> list[str]:
        """omega^t from theta^(t-1), for the layers whose turn it is; returns their names."""
        self.iteration += 1
        names = self.layers.at(self.iteration, [layer.name for layer in self._layers])
        for layer in self._layers:
            if layer.name not in names:
                continue
            if not self.affine:
                layer.reweight_penalty(self.anneal)
                continue
            before = layer.omega.clone() if self.on_reweight == "rescale" else None
            key = f"{self.seed}/{layer.name}/{self.iteration}"
            layer.reweight(self.initialiser, self.anneal, self.normalise, key)
            if layer.latent is None:
                inner.follow(self.optimizer, layer.param, before, layer.omega)
        return names

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """One step of the inner optimizer in q-space, then the proximal step of lam·g."""
        moving = [layer for layer in self._layers if closure or layer.param.grad is not None]
        in_q_space = QSpace(moving)
        with in_q_space(scale_gradients=closure is None):
            if closure is None:
                loss = self.optimizer.step()
            else:
                loss = self.optimizer.step(lambda: in_q_space.evaluate(closure))
            if self.affine:
                self._shrink(moving)
        if not self.affine:
            self._shrink(moving)
        self.steps += 1
        return loss

    def _shrink(self, layers: Sequence[Layer]) -> None:
        """The proximal step of the current majoriser, at the layer's own learning rate.

        order 1: |q| ← max(|q| - lr·lam, 0)      order 2: q ← q / (1 + 2·lr·lam)

        in q-space, where the majoriser's weights are all 1; in theta-space (affine=False) lam is
        weighted by psi.
        """
        lam = self.lam(self.steps) if callable(self.lam) else self.lam
        if not lam:
            return
        rates = {param: group["lr"] for group in self.param_groups for param in group["params"]}
        for layer in layers:
            if self.reweight_every == "step":
                layer.renew_psi()
            amount: Any = float(rates[layer.param]) * lam
            if layer.psi is not None:
                amount = layer.psi * amount
            param = layer.param
            if layer.penalty.order == 1:
                param.copy_(param.sign() * (param.abs() - amount).clamp_(min=0))
            else:
                param.div_(1 + 2 * amount)

    # ------------------------------------------------------------------ pruning

    @torch.no_grad()
    def prune(
        self,
        *,
        density: float | Mapping[str, float] | None = None,
        threshold: float | Mapping[str, float] | None = None,
        masks: Mapping[str, Tensor] | None = None,
        per_layer: bool = False,
        score: str = "lamp",
    ) -> None:
        """Sets weights to zero, exactly and for good.

        density    the share of all weights that stays, to the weight; a mapping from patterns
                   (or per_layer=True) gives each layer its own
        threshold  weights of at most this magnitude go; a number or a mapping from patterns
        masks      by parameter name, true where a weight stays
        score      "lamp" or "magnitude": what a global density compares
        """
        if any(layer.latent is not None for layer in self._layers):
            raise InputError("with latent weights the penalty prunes; call flatten() before prune")
        chosen = pruning.choose_masks(
            {layer.name: whole(layer.param.detach()) for layer in self._layers},
            {layer.name: whole(layer.kept) for layer in self._layers},
            pruning.Request(density, threshold, masks, per_layer, score),
        )
        for layer in self._layers:
            if layer.name in chosen:
                layer.prune(chosen[layer.name])
                inner.forget_pruned(self.optimizer, layer.param, layer.kept)

    @torch.no_grad()
    def flatten(self) -> None:
        """omega = 1 on all live weights: from here on, retraining in theta-space."""
        for layer in self._layers:
            if layer.scaled:
                inner.reset(self.optimizer, layer.param)
            layer.flatten()

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
        omegas = {layer.param: layer.omega for layer in self._layers if layer.latent is None}
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        seen = [param.grad * omegas[param] if param in omegas else param.grad for param in params]
        total = nn.utils.get_total_norm(seen)
        nn.utils.clip_grads_with_norm_(params, max_norm, total)
        return total

    # ------------------------------------------------------------------ an ordinary optimizer

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.optimizer.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return self.optimizer.defaults

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Parameters added later are trained as they are."""
        self.optimizer.add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's, with omega and what else belongs to a parameter beside it."""
        packed = self.optimizer.state_dict()
        entries = {key: dict(entry) for key, entry in packed["state"].items()}
        counters = {
            "iteration": torch.tensor(self.iteration),
            "steps": torch.tensor(self.steps),
            "seed": torch.tensor(self.seed),
        }
        for key, layer in self._keyed_layers():
            ours = {PREFIX + name: value for name, value in (layer.state() | counters).items()}
            entries[key] = entries.get(key, {}) | ours
        return {**packed, "state": entries}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        ours: dict[Any, dict[str, Any]] = {}
        rest: dict[Any, dict[str, Any]] = {}
        for key, entry in state_dict["state"].items():
            for name, value in entry.items():
                part = ours if name.startswith(PREFIX) else rest
                part.setdefault(key, {})[name.removeprefix(PREFIX)] = value
        for key, layer in self._keyed_layers():
            layer.load(ours.get(key, {}))
            self.iteration, self.steps, self.seed = (
                int(ours[key][name]) for name in ("iteration", "steps", "seed")
            )
        self.optimizer.load_state_dict({**state_dict, "state": rest})

    def _keyed_layers(self) -> Iterator[tuple[int, Layer]]:
        """Layers with the number that state_dict gives their parameter."""
        params = [param for group in self.param_groups for param in group["params"]]
        number = {param: key for key, param in enumerate(params)}
        return ((number[layer.param], layer) for layer in self._layers)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __repr__(self) -> str:
        kept = sum(layer.nonzeros for layer in self._layers)
        total = sum(layer.param.numel() for layer in self._layers)
        return f"AffineScaling({self.optimizer!r}, {kept} of {total} weights, t = {self.iteration})"


def _targets(
    optimizer: Optimizer,
    model: nn.Module,
    include: Sequence[str] | None,
    exclude: Sequence[str] | None,
) -> list[tuple[str, nn.Parameter]]:
    inner.check_supported(optimizer)
    held = {param for group in optimizer.param_groups for param in group["params"]}
    targets = []
    for candidate in choose(model, include, exclude):
        if candidate.param not in held:
            raise InputError(
                f"the optimizer does not hold {candidate.name}: build it from this model's"
                f" parameters, or exclude=['{candidate.name}']"
            )
        inner.check_parameter(candidate.name, candidate.param)
        targets.append((candidate.name, candidate.param))
    return targets


def _make_layer(
    name: str,
    param: nn.Parameter,
    penalty: Penalty | Mapping[str, Penalty],
    anneal: Anneal,
    affine: bool,
    latent: bool,
) -> Layer:
    if isinstance(penalty, Mapping):
        penalty = pruning.lookup(penalty, name, "penalty")
    return Layer(
        name=name,
        param=param,
        penalty=penalty,
        scale=measure_scale(param, name),
        omega=torch.ones_like(param, requires_grad=False),
        latent=param.detach().clone() if latent else None,
        psi=None if affine else torch.ones_like(param, requires_grad=False),
        previous=param.detach().clone() if anneal.needs_change else None,
    )
