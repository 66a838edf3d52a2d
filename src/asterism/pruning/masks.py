"""From a request (density, threshold, N:M or masks) to one mask per layer.

Owns the exactness contract (the density asked for is the density achieved, to the weight, or where
groups go whole, as near below it as the next group allows) and the collapse guard (no layer loses
its last weight or group). Where the weights are sharded, so are the masks.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TypeVar

import torch
from torch import Tensor, nn

from asterism.errors import InputError
from asterism.pruning import group_selection, n_to_m
from asterism.pruning.request import Request as Request
from asterism.pruning.scores import SCORES, count, magnitude
from asterism.pruning.selection import Candidates, Cut, select
from asterism.weights.names import check_patterns, lookup, matches
from asterism.weights.partition import Partition
from asterism.weights.sharding import any_shards, extremes, place_like, sum_each, whole

T = TypeVar("T")
Tensors = Mapping[str, Tensor]
Masks = dict[str, Callable[[], Tensor]]
"""Each is made when it is asked for, so that no two need be held at once."""
Groups = Mapping[str, Partition]
ByLayer = Mapping[str, Candidates]


class TooFewError(InputError):
    """A density so low that not every layer would keep a whole group."""


@dataclass(frozen=True)
class Layout:
    """How the single weights of a layer belong together.

    groups      by name, for layers whose groups stay or go whole
    input_dims  by name, the dimension along which a weight reads its input; 1 where not given
    """

    groups: Groups = field(default_factory=dict)
    input_dims: Mapping[str, int] = field(default_factory=dict)


def choose_masks(
    weights: Tensors, alive: Tensors, request: Request, layout: Layout | None = None
) -> Masks:
    """The masks of the layers that the request names; what is pruned already stays pruned.

    weights  by name
    alive    by name, not 0 where a weight is alive, for the layers where not all are
    request  what is to be kept
    layout   groups and input dimensions, where there are any

    All that can go wrong goes wrong here, before the first mask is asked for.
    """
    layout = layout or Layout()
    layers = {name: Candidates(theta, alive.get(name)) for name, theta in weights.items()}
    thetas = list(weights.values())
    diverged = any_shards([not _is_finite(theta) for theta in thetas], thetas)
    for name in compress(weights, diverged):
        raise InputError(f"{name} holds NaN or infinity: has training diverged?")
    if request.masks is not None:
        return {name: _given(layers, name, mask) for name, mask in request.masks.items()}
    if request.threshold is not None:
        levels = _per_layer(request.threshold, weights, "threshold")
        return {
            name: _above(name, layers[name], level, layout.groups.get(name))
            for name, level in levels.items()
        }
    if request.n_to_m is not None:
        named = _per_layer(request.n_to_m, weights, "n_to_m")
        return _n_of_each_m(layers, named, layout.input_dims)
    assert request.density is not None
    if not request.per_layer and not isinstance(request.density, Mapping):
        return _largest(layers, request.density, request, layout.groups)
    masks: Masks = {}
    by_magnitude = replace(request, score="magnitude")
    for name, density in _per_layer(request.density, weights, "density").items():
        masks |= _largest({name: layers[name]}, density, by_magnitude, layout.groups)
    return masks


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


def _largest(layers: ByLayer, density: float, request: Request, groups: Groups) -> Masks:
    """Masks for a density of some layers together; none where `at_most` is met already."""
    score = request.score
    keep = count(density, sum(layer.theta.numel() for layer in layers.values()))
    counts = [layer.count_here() for layer in layers.values()]
    thetas = [layer.theta for layer in layers.values()]
    alive = dict(zip(layers, sum_each(counts, thetas), strict=True))
    if request.at_most and sum(alive.values()) <= keep:
        return {}
    where = next(iter(layers)) if len(layers) == 1 else f"{len(layers)} layers"
    if keep < len(layers):
        raise InputError(
            f"density {density} would keep {keep} weights in {where}: every layer needs at least"
            " one"
        )
    groups = {name: groups[name] for name in layers if name in groups}
    # A cut by groups leaves up to a group less than it was asked for; the next may be asked for it.
    slack = max((int(each.sizes.max()) - 1 for each in groups.values()), default=0)
    if keep > sum(alive.values()) + slack:
        raise InputError(
            f"density {density} asks for {keep} weights in {where}, but only"
            f" {sum(alive.values())} are left: pruned weights do not come back"
        )
    if groups:
        return _best_groups(layers, keep, score, groups)
    cuts = _select(layers, keep, score)
    lost = [name for name, cut in cuts.items() if alive[name] and not cut.count]
    if lost:
        _warn_collapse(lost)
        cuts |= _protect(layers, [name for name in layers if alive[name]], lost, keep, score)
    return {name: cut.mask for name, cut in cuts.items()}


def _best_groups(layers: ByLayer, keep: int, score: str, groups: Groups) -> Masks:
    """At most `keep` weights in whole groups; gathered, where they are sharded."""
    wholes = {name: _gathered(layer) for name, layer in layers.items()}
    units = {
        name: group_selection.measure(theta, kept, groups.get(name), score)
        for name, (theta, kept) in wholes.items()
    }

    def choose(candidates: list[group_selection.Units]) -> tuple[dict[str, Tensor], list[str]]:
        chosen = zip(layers, group_selection.keep_best(candidates, keep), strict=True)
        masks = {
            name: group_selection.spread(each, wholes[name][1], groups.get(name))
            for name, each in chosen
        }
        return masks, [name for name in masks if units[name].alive and not masks[name].any()]

    masks, lost = choose(list(units.values()))
    if lost:
        masks, still_lost = choose([group_selection.protect_best(each) for each in units.values()])
        if still_lost:
            raise TooFewError(
                f"{keep} weights are too few for one whole group in each layer: nothing would be"
                f" left of {', '.join(still_lost)}"
            )
        _warn_collapse(lost, "group")
    return {name: _placed(mask, layers[name]) for name, mask in masks.items()}


def _select(layers: ByLayer, keep: int, score: str) -> dict[str, Cut]:
    return dict(zip(layers, select(list(layers.values()), keep, SCORES[score]), strict=True))


def _protect(
    layers: ByLayer, alive: Sequence[str], lost: Sequence[str], keep: int, score: str
) -> dict[str, Cut]:
    """One weight for each layer that is lost, and the rest for the others, until none is."""
    ones = {name: select([layers[name]], 1, magnitude)[0] for name in lost}
    others = {name: layers[name] for name in alive if name not in lost}
    cuts = _select(others, keep - len(lost), score)
    more = [name for name, cut in cuts.items() if not cut.count]
    return cuts | ones if not more else _protect(layers, alive, [*lost, *more], keep, score)


def _above(
    name: str, layer: Candidates, level: float, groups: Partition | None
) -> Callable[[], Tensor]:
    if not 0 <= level < math.inf:
        raise InputError(f"a threshold must be at least 0 and finite, got {level} for {name}")
    if groups is not None:
        return _groups_above(name, layer, level, groups)

    def mask() -> Tensor:
        return _alive((layer.theta.abs() > level), layer)

    if any_shards([layer.count_here() > 0], [layer.theta])[0] and not _any(mask()):
        _warn_collapse([name])
        return select([layer], 1, magnitude)[0].mask
    return mask


def _groups_above(
    name: str, layer: Candidates, level: float, groups: Partition
) -> Callable[[], Tensor]:
    theta, kept = _gathered(layer)
    sizes = group_selection.rms(theta * kept, groups)
    chosen = sizes > level
    if kept.any() and not (groups.spread(chosen) & kept).any():
        _warn_collapse([name], "group")
        chosen = torch.arange(len(sizes), device=sizes.device) == sizes.argmax()
    return _placed(group_selection.spread(chosen, kept, groups), layer)


def _n_of_each_m(layers: ByLayer, named: Mapping[str, str], input_dims: Mapping[str, int]) -> Masks:
    wanted = {name: n_to_m.parse(text) for name, text in named.items()}
    dims = {name: input_dims.get(name, 1) for name in wanted}
    unfit = [name for name in wanted if not wanted[name].fits(layers[name].theta, dims[name])]
    if unfit:
        ratio = wanted[unfit[0]]
        sizes = (f"{name} has {layers[name].theta.shape[dims[name]]}" for name in unfit)
        raise InputError(
            f"{ratio} needs inputs divisible by {ratio.block}, but {', '.join(sizes)}: name the"
            f" layers that fit, as in n_to_m={{'fc*': '{ratio}'}}, or exclude=[...] the others"
        )

    def mask_of(name: str) -> Callable[[], Tensor]:
        def mask() -> Tensor:
            theta, kept = _gathered(layers[name])
            return n_to_m.select(theta, kept, wanted[name], dims[name])

        return mask

    return {name: mask_of(name) for name in wanted}


def _given(layers: ByLayer, name: str, given: Tensor) -> Callable[[], Tensor]:
    if name not in layers:
        raise InputError(f"no layer is called {name!r}; there are {', '.join(layers)}")
    layer = layers[name]
    if given.dtype != torch.bool or given.shape != layer.theta.shape:
        raise InputError(
            f"the mask of {name} must be bool of shape {tuple(layer.theta.shape)},"
            f" found {given.dtype} of shape {tuple(given.shape)}"
        )

    def mask() -> Tensor:
        return _alive(place_like(given.to(layer.theta.device), layer.theta), layer)

    if not _any(mask()):
        raise InputError(f"the mask of {name} keeps none of its weights")
    return mask


def _gathered(layer: Candidates) -> tuple[Tensor, Tensor]:
    """The whole weight, and where it is alive."""
    theta = whole(layer.theta)
    if layer.alive is None:
        return theta, torch.ones_like(theta, dtype=torch.bool)
    return theta, whole(layer.alive != 0)


def _placed(mask: Tensor, layer: Candidates) -> Callable[[], Tensor]:
    return lambda: place_like(mask, layer.theta)


def _alive(mask: Tensor, layer: Candidates) -> Tensor:
    return mask if layer.alive is None else mask & (layer.alive != 0)


def _is_finite(theta: Tensor) -> bool:
    """Whether this rank's shard is."""
    return all(map(math.isfinite, extremes(theta)))


def _any(mask: Tensor) -> bool:
    return bool(whole(mask.any()))


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
