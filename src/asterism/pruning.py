"""From a request (density, threshold or masks) to one mask per layer.

Owns the exactness contract (the density asked for is the density achieved, to the weight) and the
collapse guard (no layer loses its last weight). Whole tensors in, whole masks out.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from asterism.errors import InputError
from asterism.masks import OUT, SCORES, count, keep_largest, magnitude, protect_largest
from asterism.names import check_patterns, lookup, matches

Tensors = Mapping[str, Tensor]
Masks = dict[str, Tensor]


@dataclass(frozen=True)
class Request:
    """What `AffineScaling.prune` was asked for; exactly one of the first three."""

    density: float | Mapping[str, float] | None = None
    threshold: float | Mapping[str, float] | None = None
    masks: Tensors | None = None
    per_layer: bool = False
    score: str = "lamp"

    def __post_init__(self) -> None:
        given = [self.density, self.threshold, self.masks]
        if sum(each is not None for each in given) != 1:
            raise InputError("prune takes exactly one of density, threshold and masks")
        if self.score not in SCORES:
            raise InputError(f"unknown score {self.score!r}: choose from {', '.join(SCORES)}")


def choose_masks(weights: Tensors, kept: Tensors, request: Request) -> Masks:
    """The masks of the layers that the request names; what is pruned already stays pruned."""
    for name, theta in weights.items():
        if not theta.isfinite().all():
            raise InputError(f"{name} holds NaN or infinity: has training diverged?")
    if request.masks is not None:
        return _given(weights, kept, request.masks)
    if request.threshold is not None:
        levels = _per_layer(request.threshold, weights, "threshold")
        return {name: _above(name, weights[name], kept[name], levels[name]) for name in levels}
    assert request.density is not None
    if request.per_layer or isinstance(request.density, Mapping):
        densities = _per_layer(request.density, weights, "density")
        return {
            name: _largest({name: weights[name]}, kept, densities[name], "magnitude")[name]
            for name in densities
        }
    return _largest(weights, kept, request.density, request.score)


@torch.no_grad()
def apply_masks(model: nn.Module, masks: Tensors) -> None:
    """Zeroes what the masks leave out, in any copy of the model (averaged, wrapped or loaded)."""
    named = list(model.named_parameters(remove_duplicate=False))
    params = {_unwrapped(name): param for name, param in named} | dict(named)
    for name, mask in masks.items():
        param = params.get(name, params.get(_unwrapped(name)))
        if param is None or param.shape != mask.shape:
            raise InputError(f"the copy has no parameter {name} of shape {tuple(mask.shape)}")
        param.mul_(mask.to(param.device))


def _unwrapped(name: str) -> str:
    """The name without what averaging, data parallelism and torch.compile put before it."""
    return re.sub(r"^((module|_orig_mod)\.)+", "", name)


def _largest(weights: Tensors, kept: Tensors, density: float, score: str) -> Masks:
    keep = count(density, sum(theta.numel() for theta in weights.values()))
    where = next(iter(weights)) if len(weights) == 1 else f"{len(weights)} layers"
    if keep < len(weights):
        raise InputError(
            f"density {density} would keep {keep} weights in {where}: every layer needs at least"
            " one"
        )
    alive = sum(int(kept[name].sum()) for name in weights)
    if keep > alive:
        raise InputError(
            f"density {density} asks for {keep} weights in {where}, but only {alive} are left:"
            " pruned weights do not come back"
        )
    scores = [
        SCORES[score](theta * kept[name]).masked_fill(~kept[name], OUT)
        for name, theta in weights.items()
    ]
    masks = dict(zip(weights, keep_largest(scores, keep), strict=True))
    lost = [name for name, mask in masks.items() if kept[name].any() and not mask.any()]
    if lost:
        _warn_collapse(lost)
        protected = [protect_largest(each) for each in scores]
        masks = dict(zip(weights, keep_largest(protected, keep), strict=True))
    return masks


def _above(name: str, theta: Tensor, kept: Tensor, level: float) -> Tensor:
    if not 0 <= level < math.inf:
        raise InputError(f"a threshold must be at least 0 and finite, got {level} for {name}")
    mask = (theta.abs() > level) & kept
    if kept.any() and not mask.any():
        _warn_collapse([name])
        mask = keep_largest([magnitude(theta).masked_fill(~kept, OUT)], 1)[0]
    return mask


def _given(weights: Tensors, kept: Tensors, masks: Tensors) -> Masks:
    chosen = {}
    for name, mask in masks.items():
        if name not in weights:
            raise InputError(f"no layer is called {name!r}; there are {', '.join(weights)}")
        if mask.dtype != torch.bool or mask.shape != weights[name].shape:
            raise InputError(
                f"the mask of {name} must be bool of shape {tuple(weights[name].shape)},"
                f" found {mask.dtype} of shape {tuple(mask.shape)}"
            )
        chosen[name] = mask.to(kept[name].device) & kept[name]
        if not chosen[name].any():
            raise InputError(f"the mask of {name} keeps none of its weights")
    return chosen


def _per_layer(value: float | Mapping[str, float], weights: Tensors, what: str) -> dict[str, float]:
    """One number per layer that is named; layers that no pattern matches are left alone."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(weights, value)
    check_patterns(value, weights)
    named = [name for name in weights if matches(name, value)]
    return {name: lookup(value, name, what) for name in named}


def _warn_collapse(names: list[str]) -> None:
    warnings.warn(
        f"the cut would leave nothing of {', '.join(names)}: the largest weight stays",
        stacklevel=4,
    )
