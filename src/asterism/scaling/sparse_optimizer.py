"""SparseOptimizer: what all the algorithms share, around any optimizer of torch's.

Owns the layers, the frame of a step, the cut, the masks and saving. Each algorithm adds its own
arguments and overrides as little as it can:

    AffineScaling         theta = q ⊙ omega, the paper's Algorithm 1
    ProximalReweighting   the re-weighted objective in the plain metric
    Splicing              a latent q, as in Dynamic Network Surgery
    Masked                nothing but the zeros, held where they are
    DropAndGrow           zeros that move to better places, as in RigL
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from asterism.errors import InputError
from asterism.pruning import masks as pruning
from asterism.scaling.layer import Layer, make_layer
from asterism.scaling.penalties import Penalty
from asterism.scaling.stepping import inner_optimizer as inner
from asterism.scaling.stepping import state_dict as saving
from asterism.scaling.stepping.blocks import Blocks, is_large
from asterism.scaling.stepping.bundles import Bundles
from asterism.scaling.stepping.interrupts import uninterrupted
from asterism.scaling.stepping.kept import Kept
from asterism.scaling.stepping.optimizer_wrapper import OptimizerWrapper, hooked
from asterism.scaling.stepping.parts import Regularise, hidden
from asterism.scaling.stepping.q_space import (
    Closure,
    QSpace,
    is_in_q_space,
    mark_in_q_space,
    of_q,
)
from asterism.weights.names import check_patterns, matches
from asterism.weights.sharding import any_shards, whole

MOST_LAYERS = 20
"""The layers that an optimizer prints of itself; the rest is counted."""


class SparseOptimizer(OptimizerWrapper):
    """An optimizer around another one, which keeps pruned weights at exactly zero.

    The base of all algorithms; use one of them. `iteration` counts re-weightings, `steps` the
    steps.

    optimizer         the inner one, which takes the steps
    model             whose parameters it trains
    penalty           one for all layers, or a mapping from patterns to penalties
    include, exclude  glob patterns over layers; see `asterism.weights.targets`
    freeze_zeros      zeros already in the model count as pruned
    """

    seed = 0
    iteration = 0
    steps = 0

    def __init__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        penalty: Penalty | Mapping[str, Penalty],
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        freeze_zeros: bool = False,
    ) -> None:
        inner.check_supported(optimizer)
        _check_model(type(self).__name__, model)
        super().__init__(optimizer)
        targets = inner.targets(optimizer, model, include, exclude)
        if isinstance(penalty, Mapping):
            check_patterns(penalty, (weight.name for weight, _ in targets))
        self._layers = [make_layer(weight, param, penalty) for weight, param in targets]
        self._large = [layer for layer in self._layers if is_large(layer)]
        self._bundles, self._q_space = Kept(Bundles), Kept(QSpace)
        if freeze_zeros:
            self.prune(masks={layer.name: layer.param != 0 for layer in self._layers})

    # ------------------------------------------------------------------ a step

    @hooked
    def step(self, closure: Closure | None = None) -> Any:
        """One step of the inner optimizer in q-space, and what the algorithm adds to it."""
        if closure is None and inner.is_rehearsal(self.optimizer):
            return self.optimizer.step()
        if closure is not None:  # which may take long: theta is safe, and Ctrl-C at once
            with torch.no_grad():
                return self._step(closure)
        with uninterrupted():
            enabled = torch.is_grad_enabled()
            torch._C._set_grad_enabled(False)  # torch.no_grad() takes three times as long
            try:
                return self._step(None)
            finally:
                torch._C._set_grad_enabled(enabled)

    def _step(self, closure: Closure | None) -> Any:
        layers = [*self._layers] if closure else _moved(self._layers)
        self._check_unchanged()
        self._forget_stale(layers)
        blocks = Blocks(self.optimizer, [] if closure else self._large)
        bundles = [] if closure else self._bundles.of(layers).ready(self.optimizer)
        apart = [*blocks.layers, *(layer for bundle in bundles for layer in bundle.layers)]
        whole = _without(layers, apart)
        q_space = self._q_space.of(whole)
        try:
            if apart:
                regularise = self._regularise_block(apart)
                blocks.step(regularise)
                for bundle in bundles:
                    bundle.step(regularise)
            q_space.enter(self.optimizer)
            with hidden(apart):
                loss = self._inner_step(q_space, closure)
            self._regularise_q(_moved(whole) if closure else whole)
            q_space.leave()
        except BaseException:
            q_space.leave(restore=True)
            raise
        self._regularise_theta(_moved(layers) if closure else layers)
        self.steps += 1
        return loss

    def _inner_step(self, q_space: QSpace, closure: Closure | None) -> Any:
        unfused = inner.unfuse(self.optimizer)
        try:
            if closure is None:
                return self.optimizer.step()
            return self.optimizer.step(lambda: q_space.evaluate(closure))
        finally:
            for group in unfused:
                group["fused"] = True

    def _regularise_q(self, layers: list[Layer]) -> None:
        """What an algorithm does after the inner step, while the parameters hold q."""

    def _regularise_block(self, layers: Sequence[Layer]) -> Regularise:
        """The same for one block of a layer that is taken in blocks."""
        return lambda layer, q: None

    def _regularise_theta(self, layers: list[Layer]) -> None:
        """What it does once they hold theta again."""

    def _check_unchanged(self) -> None:
        """An error where `model.to(...)` has changed what omega belongs to."""
        for layer in self._layers:
            param, omega = layer.param, layer.omega
            if param.dtype is not omega.dtype or param.is_cpu is not omega.is_cpu:
                inner.refuse_change(layer.name, param, omega)

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
        *unnamed: object,
        density: float | Mapping[str, float] | None = None,
        threshold: float | Mapping[str, float] | None = None,
        masks: Mapping[str, Tensor] | None = None,
        n_to_m: str | Mapping[str, str] | None = None,
        per_layer: bool = False,
        score: str = "lamp",
        at_most: bool = False,
        include: Sequence[str] | None = None,
    ) -> None:
        """Sets weights to zero, exactly and for good.

        density    the share of the weights made sparse that stays alive, to the weight; a mapping
                   from patterns gives each layer its own. Where the penalty is a Group whole
                   groups go: as many weights stay as fit in the density
        threshold  weights of at most this magnitude go, or groups of at most this RMS; a number or
                   a mapping from patterns
        n_to_m     "2:4": of each 4 neighbours along the input the 2 largest weights stay; any N:M,
                   or a mapping from patterns of names
        masks      by parameter name, true where a weight stays
        per_layer  whether each layer keeps that share of its own weights, not of all together
        score      "lamp" or "magnitude": what a global density compares
        at_most    the density is an upper limit: where no more weights are alive, nothing happens
        include    patterns of the layers that all this is about; the others stay as they are
        """
        if unnamed:
            given = ", ".join(map(repr, unnamed))
            raise InputError(
                f"prune({given}) does not tell what is meant: write prune(density={given}) for the"
                " share of the weights that stays, or prune(threshold=…)"
            )
        self._check_unchanged()
        layers = self._matching(include)
        omegas = [layer.omega for layer in layers]
        pruned = any_shards([layer.pruned for layer in layers], omegas)
        chosen = pruning.choose_masks(
            {layer.name: layer.param.detach() for layer in layers},
            {layer.name: layer.omega for layer in compress(layers, pruned)},
            pruning.Request(density, threshold, masks, n_to_m, per_layer, score, at_most),
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
        self._check_unchanged()
        for layer in self._layers:
            self._flatten(layer)

    def _flatten(self, layer: Layer) -> None:
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
        ours = {key: saving.layer_state(layer) | counters for key, layer in layers.items()}
        return saving.join(packed, ours)

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The inverse of `state_dict`; what does not fit is refused before anything changes."""
        saving.check_form(state_dict)
        layers = saving.by_key(state_dict, self.param_groups, self._layers)
        ours, packed = saving.split(state_dict)
        saving.check(type(self), layers, ours)
        saving.load_inner(self.optimizer, packed)
        for key, layer in layers.items():
            saving.load_layer(layer, ours[key])
            for name in saving.COUNTERS:
                setattr(self, name, int(ours[key][name]))

    def wraps_what(self, other: SparseOptimizer) -> bool:
        """Whether both make the same parameters sparse, in the same way."""
        ours, theirs = self.weights(), other.weights()
        return type(self) is type(other) and (
            ours.keys() == theirs.keys() and all(ours[name] is theirs[name] for name in ours)
        )

    @torch.no_grad()
    def take_over(self, before: SparseOptimizer) -> None:
        """omega, masks and counters of an earlier wrapper; the inner optimizer starts anew."""
        for layer, earlier in zip(self._layers, before._layers, strict=True):
            saving.load_layer(layer, saving.layer_state(earlier))
            layer.param.masked_fill_(~layer.kept, 0.0)
        for name in saving.COUNTERS:
            setattr(self, name, getattr(before, name))

    def __repr__(self) -> str:
        kept = sum(layer.nonzeros for layer in self._layers)
        total = sum(layer.param.numel() for layer in self._layers)
        rates = ", ".join(f"{group['lr']:g}" for group in self.param_groups if "lr" in group)
        around = f"{type(self.optimizer).__name__}, lr {rates}" if rates else ""
        around = around or type(self.optimizer).__name__
        about = f"{kept:,} of {total:,} weights, {self.iteration} re-weightings, {self.steps} steps"
        rows = [
            f"  {layer.name}: {layer.nonzeros:,} of {layer.param.numel():,}, {layer.penalty!r}"
            for layer in self._layers[:MOST_LAYERS]
        ]
        more = len(self._layers) - len(rows)
        rows += [f"  and {more} more layers"] if more else []
        return "\n".join([f"{type(self).__name__} around {around}: {about}", *rows])


def _without(layers: list[Layer], some: Sequence[Layer]) -> list[Layer]:
    gone = {*some}
    return [layer for layer in layers if layer not in gone] if gone else layers


def _moved(layers: Sequence[Layer]) -> list[Layer]:
    """Those that have a gradient."""
    return [layer for layer in layers if layer.param.grad is not None]


def _check_model(name: str, model: object) -> None:
    """An error where another argument stands in the model's place."""
    if not isinstance(model, nn.Module):
        raise InputError(
            f"the model must be a torch.nn.Module, found {type(model).__name__}: the arguments are"
            f" {name}(optimizer, model, …)"
        )
