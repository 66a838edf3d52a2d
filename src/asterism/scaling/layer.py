"""One weight tensor and its change of variables: theta = q ⊙ omega, omega = 0 where pruned.

Owns what a `SparseOptimizer` keeps per parameter. Where the parameter is a DTensor, so is every
tensor here, with the same placement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from asterism.errors import InputError
from asterism.scaling.group_penalty import Group, soft_threshold
from asterism.scaling.initialisers import divide, root_mean_square
from asterism.scaling.penalties import Penalty
from asterism.scaling.schedules import Anneal
from asterism.scaling.stepping.zeroing import keep_, list_kept
from asterism.weights.connections import Weight
from asterism.weights.names import lookup
from asterism.weights.partition import Partition
from asterism.weights.sharding import (
    any_shard,
    extremes,
    is_sharded,
    local,
    place_like,
    sum_over_shards,
    whole,
)

INDEX_BYTES = 8  # of one entry of `live`, against one byte per weight of `dead`
SMALL = 2**16  # weights that gain nothing from torch's threads


@dataclass(eq=False)
class Layer:
    """The state of one parameter that is made sparse.

    Zeros of omega, if there are any, are kept twice: in omega, and by `dead` or by `live`.

    name        of the parameter
    param       holds theta
    penalty     its own, with the tau of now
    scale       the RMS of the weights, the unit of the penalty's constants
    omega       the metric, 0 exactly where the weight is pruned
    latent      q itself, where it cannot be had from theta (splicing)
    psi         the penalty's weights, where they are not the metric
    previous    theta at the last re-weighting, where tau's schedule asks for it
    scaled      whether omega holds anything but zeros and ones
    stale       whether the inner optimizer's state belongs to an earlier q-space
    dead        marks the pruned weights
    live        where few weights are left, lists these in the order of omega's memory
    live_omega  their omega, unless that is 1
    groups      of weights that share one psi and one omega
    input_dim   the dimension along which the weight reads its input
    changes     how often omega's form or the penalty became another
    """

    name: str
    param: nn.Parameter
    penalty: Penalty
    scale: float
    omega: Tensor
    latent: Tensor | None = None
    psi: Tensor | None = None
    previous: Tensor | None = None
    scaled: bool = False
    stale: bool = False
    dead: Tensor | None = None
    live: Tensor | None = None
    live_omega: Tensor | None = None
    groups: Partition | None = None
    input_dim: int = 1
    changes: int = 0

    @property
    def kept(self) -> Tensor:
        """The mask: true where the weight is alive."""
        return self.omega != 0

    @property
    def pruned(self) -> bool:
        """Whether any weight of this rank's shard is."""
        return self.dead is not None or self.live is not None

    @cached_property
    def is_small(self) -> bool:
        """Whether compiled passes take it on one thread: float32 on the CPU, and not large."""
        omega = self.omega
        plain = omega.is_cpu and omega.dtype is torch.float32 and not is_sharded(omega)
        return plain and omega.numel() <= SMALL

    @property
    def tau(self) -> float:
        """The penalty's, which anneals; 0 and fixed where the penalty has none."""
        return getattr(self.penalty, "tau", 0.0)

    @tau.setter
    def tau(self, tau: float) -> None:
        if hasattr(self.penalty, "tau"):
            self.penalty = replace(self.penalty, tau=tau)  # type: ignore[type-var]
            self.changes += 1

    @property
    def nonzeros(self) -> int:
        return int(sum_over_shards(local(self.omega).count_nonzero(), self.omega))

    @property
    def q(self) -> Tensor:
        """theta / omega, 0 where pruned."""
        if self.scaled:
            return divide(self.param, self.omega) if self.pruned else self.param / self.omega
        return self.param * self.kept if self.pruned else self.param.clone()

    def multiply_(self, tensor: Tensor, *, zero: bool = True) -> None:
        """tensor ← tensor ⊙ omega in place; with `zero` exactly +0 where pruned, else anything."""
        self._on_live_(tensor, torch.mul, zero)

    def divide_(self, tensor: Tensor) -> None:
        """tensor ← tensor / omega in place, exactly +0 where pruned."""
        self._on_live_(tensor, torch.div, zero=True)

    def _on_live_(self, tensor: Tensor, operation: Callable[..., Tensor], zero: bool) -> None:
        tensor = local(tensor)
        if self.live is not None:
            self._on_listed_(tensor, operation, self.live, zero)
            return
        if self.scaled:
            operation(tensor, local(self.omega), out=tensor)
        if zero and self.dead is not None:
            tensor.masked_fill_(self.dead, 0.0)

    def _on_listed_(
        self, tensor: Tensor, operation: Callable[..., Tensor], live: Tensor, zero: bool
    ) -> None:
        omega = local(self.omega)
        if tensor.stride() != omega.stride():  # the list is of places in omega's memory
            ordered = torch.empty_like(omega).copy_(tensor)
            self._on_listed_(ordered, operation, live, zero)
            tensor.copy_(ordered)
            return
        flat = in_memory(tensor)
        values = flat.index_select(0, live)
        if self.live_omega is not None:
            operation(values, self.live_omega, out=values)
        if zero:
            flat.zero_()
        flat.index_copy_(0, live, values)

    def magnitude(self, theta: Tensor) -> Tensor:
        """|theta|, or the RMS of each weight's group, in a shape that broadcasts to theta's."""
        if self.groups is None:
            return theta.abs()
        squares = whole(self.groups.reduce(theta.square()))
        z = self.groups.spread(self.groups.magnitudes(squares))
        return place_like(z.expand(theta.shape), theta) if is_sharded(theta) else z

    def move(self, omega: Tensor, theta: Tensor) -> None:
        """The next omega and theta, both or neither; theta is exactly 0 where omega is."""
        low, high = extremes(omega)
        if low == 0:
            theta.masked_fill_(omega == 0, 0.0)
        self._check_finite(theta, low, high)
        self.omega.copy_(omega)
        self.param.copy_(theta)
        plain = {low, high} <= {0.0, 1.0} and is_binary(omega)
        self.scaled = any_shard(not plain, omega)
        self.mark_dead(low == 0)

    def mark_scaled(self) -> None:
        """Once omega was written to: all of it positive."""
        self.scaled = True
        self.mark_dead(False)

    def renew_psi(self) -> None:
        """psi from theta, 1 at zero."""
        assert self.psi is not None
        self.psi.copy_(self.penalty.relative_psi(self.magnitude(self.param), self.scale))

    def shrink(self, amount: Any) -> None:
        """The proximal step of amount·|theta| (order 1) or amount·theta² (order 2).

        order 1: |theta| ← max(|theta| - amount, 0)      order 2: theta ← theta / (1 + 2·amount)

        with a number, or one amount for each weight, on whatever the parameter holds,
        theta or q. Of a group it is the RMS that shrinks, all of its weights by the same factor.
        """
        if self.penalty.order == 2:
            self.param.div_(1 + 2 * amount)
        elif self.groups is None:
            self.param.sub_(self.param.clamp(-amount, amount))
        else:  # in q-space anything may stand where a weight is pruned
            live = self.param.masked_fill(~self.kept, 0.0) if self.pruned else self.param
            self.param.mul_(soft_threshold(self.magnitude(live), amount))

    def prune(self, kept: Tensor) -> None:
        """Weights outside `kept` are zero from here on."""
        if self.latent is not None:
            raise InputError("while splicing the penalty prunes: call flatten() before prune")
        if kept.dtype != torch.bool or kept.shape != self.param.shape:
            raise InputError(
                f"the mask of {self.name} must be bool of shape {tuple(self.param.shape)},"
                f" found {kept.dtype} of shape {tuple(kept.shape)}"
            )
        kept = place_like(kept.to(self.param.device), self.param)
        keep_([self.omega, self.param], kept)
        any_here = int(local(kept).count_nonzero()) < local(kept).numel()
        del kept  # a quarter of the layer's size
        self.mark_dead(self.pruned or any_here)

    def flatten(self) -> None:
        """omega = 1 on the live weights and no latent q: q = theta again, masks as they are."""
        low, high = extremes(self.omega)
        self.check_alive(self.omega, high)  # while splicing a layer may be cut off, not for good
        self.omega.copy_(self.kept)
        self.latent, self.scaled = None, False
        self.mark_dead(low == 0)

    def mark_dead(self, any_here: bool) -> None:
        """Marks or lists the zeros of omega anew, if there are `any_here`."""
        self.changes += 1
        self.dead = self.live = self.live_omega = None
        if not any_here:
            return
        kept = local(self.omega) != 0
        count = int(kept.count_nonzero())  # a sum of bools would make integers of them all
        # Splicing changes the mask too often for a list to be worth its making.
        if self.latent is None and count * INDEX_BYTES <= kept.numel():
            self.live = list_kept(in_memory(kept), count)
            omega = in_memory(local(self.omega))
            self.live_omega = omega.index_select(0, self.live) if self.scaled else None
        else:
            self.dead = kept.logical_not_()

    def anneal(self, anneal: Anneal) -> None:
        """tau for the next re-weighting."""
        change = 0.0
        if self.previous is not None:
            moved = torch.linalg.vector_norm(self.param - self.previous)
            change = float(whole(moved / torch.linalg.vector_norm(self.previous)))
            self.previous.copy_(self.param)
        self.tau = anneal.next(self.tau, change)

    def check_alive(self, omega: Tensor, high: float) -> None:
        """An error where omega, at most `high` on this rank, is 0 on all of them."""
        if not any_shard(high != 0, omega):
            raise InputError(
                f"{self.name}: omega is 0 everywhere, so nothing of the layer would be left: use a"
                " penalty with a lower threshold, or a larger tau"
            )

    def _check_finite(self, theta: Tensor, *omega: float) -> None:
        if any_shard(not all(map(math.isfinite, (*omega, *extremes(theta)))), theta):
            raise InputError(
                f"{self.name}: omega or q ⊙ omega is not finite: has training diverged? Go back to"
                " the last good state"
            )


def make_layer(
    weight: Weight, param: nn.Parameter, penalty: Penalty | Mapping[str, Penalty]
) -> Layer:
    """A layer at its start: q = theta, omega = 1.

    weight   the parameter's name and place in the model
    param    the parameter
    penalty  the layer's own, or a mapping from patterns to penalties
    """
    name, groups = weight.name, None
    if isinstance(penalty, Mapping):
        penalty = lookup(penalty, name, "penalty")
    if not isinstance(penalty, Penalty):
        raise InputError(f"expected a penalty such as ReweightedL1() for {name}, found {penalty!r}")
    if isinstance(penalty, Group):
        groups = penalty.partition(weight).to(param.device)
        penalty = penalty.penalty
    return Layer(
        name=name,
        param=param,
        penalty=penalty,
        scale=measure_scale(param, name),
        omega=torch.ones_like(param, requires_grad=False),
        groups=groups,
        input_dim=weight.input_dim,
    )


def measure_scale(param: Tensor, name: str) -> float:
    """The RMS of the non-zero weights: the unit of tau, measured once."""
    scale = float(whole(root_mean_square(param.detach(), param != 0)))
    if not 0 < scale < float("inf"):
        raise InputError(
            f"{name} has an RMS weight of {scale}: it needs finite weights, not all zero, or"
            f" exclude=['{name}']"
        )
    return scale


def in_memory(tensor: Tensor) -> Tensor:
    """A dense tensor as one row of numbers, in the order in which they are stored."""
    return tensor.as_strided((tensor.numel(),), (1,))


def is_binary(omega: Tensor) -> bool:
    """Whether this rank's shard holds nothing but zeros and ones."""
    part = local(omega)
    return bool(((part == 0) | (part == 1)).all())
