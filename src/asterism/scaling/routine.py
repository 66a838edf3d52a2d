"""When to re-weight and when to cut, counted in optimizer steps: one routine for all trainers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from torch import nn
from torch.optim import Optimizer

from asterism.errors import InputError
from asterism.scaling.affine_scaling import AffineScaling
from asterism.scaling.penalties import Penalty, ReweightedL1
from asterism.scaling.reweighting import Lam, Reweighting
from asterism.scaling.schedules import AllLayers


class Algorithm(Protocol):
    """AffineScaling, ProximalReweighting or Splicing, or one of them with settings of its own."""

    def __call__(
        self,
        optimizer: Optimizer,
        model: nn.Module,
        penalty: Penalty | Mapping[str, Penalty],
        *,
        include: Sequence[str] | None,
        exclude: Sequence[str] | None,
    ) -> Reweighting: ...


@dataclass(frozen=True)
class Routine:
    """Re-weights at regular steps, then cuts once, and from there on trains what is left.

    density         the share of the weights that stays
    cut_at          after how many steps
    reweight_every  steps from one re-weighting to the next, until then
    penalty         one for all layers, or a mapping from patterns to penalties
    algorithm       what to wrap the optimizer in; settings of its own go in by
                    `functools.partial(ProximalReweighting, lam=0.005)`; its lam ends with the cut
    include, exclude  glob patterns over layers; see `asterism.weights.targets`

    It hangs on the optimizer's own step, so it counts neither micro-batches nor skipped steps,
    and a checkpoint resumes it: the number of steps is part of the optimizer's state.
    """

    density: float
    cut_at: int
    reweight_every: int
    penalty: Penalty | Mapping[str, Penalty] = field(default_factory=ReweightedL1)
    algorithm: Algorithm = field(default_factory=lambda: partial(AffineScaling, layers=AllLayers()))
    include: Sequence[str] | None = None
    exclude: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.cut_at < 1 or self.reweight_every < 1:
            raise InputError(f"cut_at and reweight_every count steps, from 1 on: got {self}")

    def wrap(self, optimizer: Optimizer, model: nn.Module) -> Reweighting:
        """The optimizer, wrapped, with this routine in its step."""
        wrapped = self.algorithm(
            optimizer, model, self.penalty, include=self.include, exclude=self.exclude
        )
        wrapped.lam = _until(self.cut_at, wrapped.lam)
        seen = wrapped.steps

        def follow(*_: Any) -> None:
            nonlocal seen
            if wrapped.steps != seen:  # a step may be a mere rehearsal
                seen = wrapped.steps
                self.after(wrapped)

        wrapped.register_step_post_hook(follow)
        return wrapped

    def check_reached(self, steps: int) -> None:
        """A warning where training will end before the cut."""
        if steps < self.cut_at:
            warnings.warn(
                f"training ends after {steps} steps, before cut_at={self.cut_at}: nothing will be"
                " cut. Lower cut_at, or train for longer",
                stacklevel=3,
            )

    def after(self, wrapped: Reweighting) -> None:
        """What is due after this step."""
        if wrapped.steps == self.cut_at:
            wrapped.flatten()
            wrapped.prune(density=self.density)
        elif wrapped.steps < self.cut_at and wrapped.steps % self.reweight_every == 0:
            wrapped.reweight()


def _until(end: int, lam: Lam) -> Lam:
    """lam before a step, 0 from there on."""

    def now(step: int) -> float:
        if step >= end:
            return 0.0
        return lam(step) if callable(lam) else lam

    return now if lam else lam
