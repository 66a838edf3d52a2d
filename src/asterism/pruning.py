"""From a request (density, threshold, pattern or masks) to one mask per layer.

Owns the exactness contract (the density asked for is the density achieved, to the weight, or where
groups go whole, as near below it as the next group allows) and the collapse guard (no layer loses
its last weight or group). Whole tensors in, whole masks out.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from asterism import group_pruning, patterns
from asterism.errors import InputError
from asterism.groups import Partition
from asterism.masks import OUT, SCORES, count, keep_largest, magnitude, protect_largest
from asterism.names import check_patterns, lookup, matches

T = TypeVar("T")
Tensors = Mapping[str, Tensor]
Masks = dict[str, Tensor]
Groups = Mapping[str, Partition]


@dataclass(frozen=True)
class Request:
    """What `AffineScaling.prune` was asked for; exactly one of the first four."""

    density: float | Mapping[str, float] | None = None
    threshold: float | Mapping[str, float] | None = None
    masks: Tensors | None = None
    pattern: str | Mapping[str, str] | None = None
    per_layer: bool = False
    score: str = "lamp"

    def __post_init__(self) -> None:
        given = [self.density, self.threshold, self.masks, self.pattern]
        if sum(each is not None for each in given) != 1:
            raise InputError("prune takes exactly one of density, threshold, pattern and masks")
        if self.score not in SCORES:
            raise InputError(f"unknown score {self.score!r}: choose from {', '.join(SCORES)}")


@dataclass(frozen=True)
class Layout:
    """How weights belong together, by name: groups that go whole, and where the input lies."""

    groups: Groups = field(default_factory=dict)
    input_dims: Mapping[str, int] = field(default_factory=dict)


def choose_masks(
    weights: Tensors, kept: Tensors, request: Request, layout: Layout | None = None
) -> Masks:
    """The masks of the layers that the request names; what is pruned already stays pruned."""
    layout = layout or Layout()
    for name, theta in weights.items():
        if not theta.isfinite().all():
            raise InputError(f"{name} holds NaN or infinity: has training diverged?")
    if request.masks is not None:
        return _given(weights, kept, request.masks)
    if request.threshold is not None:
        levels = _per_layer(request.threshold, weights, "threshold")
        return {
            name: _above(name, weights[name], kept[name], levels[name], layout.groups.get(name))
            for name in levels
        }
    if request.pattern is not None:
        named = _per_layer(request.pattern, weights, "pattern")
        return _patterned(weights, kept, named, layout.input_dims)
    assert request.density is not None
    if request.per_layer or isinstance(request.density, Mapping):
        densities = _per_layer(request.density, weights, "density")
        return {
            name: _largest(
                {name: weights[name]}, kept, densities[name], "magnitude", layout.groups
            )[name]
            for name in densities
        }
    return _largest(weights, kept, request.density, request.score, layout.groups)


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


def _largest(weights: Tensors, kept: Tensors, density: float, score: str, groups: Groups) -> Masks:
    keep = count(density, sum(theta.numel() for theta in weights.values()))
    where = next(iter(weights)) if len(weights) == 1 else f"{len(weights)} layers"
    if keep < len(weights):
        raise InputError(
            f"density {density} would keep {keep} weights in {where}: every layer needs at least"
            " one"
        )
    alive = sum(int(kept[name].sum()) for name in weights)
    # A cut by groups leaves up to a group less than it was asked for; the next may be asked for it.
    slack = max(
        (int(groups[name].sizes.max()) - 1 for name in weights if name in groups), default=0
    )
    if keep > alive + slack:
        raise InputError(
            f"density {density} asks for {keep} weights in {where}, but only {alive} are left:"
            " pruned weights do not come back"
        )
    if any(name in groups for name in weights):
        return _best_groups(weights, kept, keep, score, groups)
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


def _best_groups(weights: Tensors, kept: Tensors, keep: int, score: str, groups: Groups) -> Masks:
    """At most `keep` weights in whole groups."""
    units = {
        name: group_pruning.measure(theta, kept[name], groups.get(name), score)
        for name, theta in weights.items()
    }

    def select(candidates: list[group_pruning.Units]) -> tuple[Masks, list[str]]:
        chosen = zip(weights, group_pruning.keep_best(candidates, keep), strict=True)
        masks = {
            name: group_pruning.spread(each, kept[name], groups.get(name)) for name, each in chosen
        }
        return masks, [name for name in masks if units[name].alive and not masks[name].any()]

    masks, lost = select(list(units.values()))
    if lost:
        masks, still_lost = select([group_pruning.protect_best(each) for each in units.values()])
        if still_lost:
            raise InputError(
                f"{keep} weights are too few for one whole group in each layer: nothing would be"
                f" left of {', '.join(still_lost)}"
            )
        _warn_collapse(lost, "group")
    return masks


def _above(
    name: str, theta: Tensor, kept: Tensor, level: float, groups: Partition | None
) -> Tensor:
    if not 0 <= level < math.inf:
        raise InputError(f"a threshold must be at least 0 and finite, got {level} for {name}")
    if groups is None:
        sizes = magnitude(theta)
    else:
        sizes = groups.spread(group_pruning.rms(theta * kept, groups)).expand(theta.shape)
    mask = (sizes > level) & kept
    if kept.any() and not mask.any():
        _warn_collapse([name], "weight" if groups is None else "group")
        best = keep_largest([sizes.masked_fill(~kept, OUT)], 1)[0]
        mask = best if groups is None else groups.spread(groups.sums(best.long()) > 0) & kept
    return mask


def _patterned(
    weights: Tensors, kept: Tensors, named: Mapping[str, str], input_dims: Mapping[str, int]
) -> Masks:
    wanted = {name: patterns.parse(text) for name, text in named.items()}
    dims = {name: input_dims.get(name, 1) for name in wanted}
    unfit = [name for name in wanted if not wanted[name].fits(weights[name], dims[name])]
    if unfit:
        sizes = (f"{name} has {weights[name].shape[dims[name]]} inputs" for name in unfit)
        raise InputError(
            f"the pattern {wanted[unfit[0]]} needs input dimensions divisible by"
            f" {wanted[unfit[0]].block}, but {', '.join(sizes)}: name the layers that fit, as in"
            f" pattern={{'fc*': '{wanted[unfit[0]]}'}}, or exclude=[...] the others"
        )
    return {
        name: patterns.select(weights[name], kept[name], wanted[name], dims[name])
        for name in wanted
    }


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


def _per_layer(value: T | Mapping[str, T], weights: Tensors, what: str) -> dict[str, T]:
    """One value per layer that is named; layers that no pattern matches are left alone."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(weights, value)
    check_patterns(value, weights)
    named = [name for name in weights if matches(name, value)]
    return {name: lookup(value, name, what) for name in named}


def _warn_collapse(names: list[str], what: str = "weight") -> None:
    warnings.warn(
        f"the cut would leave nothing of {', '.join(names)}: the largest {what} stays",
        stacklevel=4,
    )
